"""AG-UI AgentCapabilities of an agent. The platform's own flags, for which AG-UI has no field, go under `custom.ambient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DeclaredCapabilities", "agent_capabilities"]


class DeclaredCapabilities(Protocol):
    """The capabilities a bridge declares. `bridges.base.FrameworkCapabilities` implements this protocol."""

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


def agent_capabilities(
    name: str, framework: DeclaredCapabilities, *, durable: bool, audience: str = "open", features: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the AgentCapabilities for `GET /capabilities`. `durable`: runs and state survive this process. `audience`: what clients see.

    Unknown capabilities (subagents, media, approvals) are left out, which in AG-UI means undeclared, not absent.
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
                "audience": audience,
                "fileSystem": framework.file_system,
                "mcp": framework.mcp,
                "sessionPersistence": framework.session_persistence,
                "features": list(features),
            }
        },
    }
