"""What an agent can do, in the shape AG-UI gives it. The platform's own flags, which AG-UI has no field for, go under `custom.ambient`."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Framework", "agent_capabilities"]


class Framework(Protocol):
    """What a bridge declares; `bridges.base.FrameworkCapabilities` has this shape."""

    @property
    def file_system(self) -> bool: ...
    @property
    def mcp(self) -> bool: ...
    @property
    def session_persistence(self) -> bool: ...
    @property
    def streaming(self) -> bool: ...
    @property
    def thinking(self) -> bool: ...
    @property
    def tool_use(self) -> bool: ...


def agent_capabilities(name: str, framework: Framework, *, durable: bool) -> dict[str, Any]:
    """AG-UI AgentCapabilities for `GET /capabilities`. `durable`: runs and state survive this process.

    What is not known here (subagents, media, approvals) is left out, which in AG-UI means undeclared, not absent.
    """
    return {
        "identity": {"name": name},
        "transport": {
            "streaming": framework.streaming,
            "websocket": False,
            "httpBinary": False,
            "pushNotifications": False,
            "resumable": True,
        },
        "tools": {"supported": framework.tool_use},
        "state": {"snapshots": True, "persistentState": True},
        "reasoning": {"supported": framework.thinking, "streaming": framework.thinking and framework.streaming},
        "custom": {
            "ambient": {
                "durable": durable,
                "fileSystem": framework.file_system,
                "mcp": framework.mcp,
                "sessionPersistence": framework.session_persistence,
            }
        },
    }
