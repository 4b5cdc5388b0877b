"""Claude behind AG-UI, through the Claude Agent SDK and its CLI. `bridge.py` is the door, `conversation.py` runs one thread.

`session.py` owns a CLI process, `process.py` starts and ends it, `translate.py` is pure. Nothing is imported here before it is asked for:
the SDK is needed only by those who use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.bridges.claude.bridge import ClaudeBridge

__all__ = ["ClaudeBridge"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ambient_runner.bridges.claude.bridge import ClaudeBridge

    return ClaudeBridge
