"""The bridge to commands that print text or lines of JSON.

    add_ambient_endpoints(app, LinesBridge(command=["codex", "exec", "--json", "-"]))

`docs/agents/lines.md` lists the settings.
"""

from __future__ import annotations

from ambient_runner.bridges.lines.bridge import LinesBridge

__all__ = ["LinesBridge"]
