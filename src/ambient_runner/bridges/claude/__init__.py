"""Claude behind AG-UI, through the Claude Agent SDK and its CLI.

`bridge.py` creates adapters, `adapter.py` serves one thread, `run.py` is one run. `session.py` owns a CLI process, `process.py` starts and
ends it, `translate.py` turns its messages into events. `ClaudeBridge` can be imported from here too, a published name. It is loaded on
first use, because only users of this bridge have the SDK installed.
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
