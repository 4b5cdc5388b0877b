"""The bridge to Claude, with its tools for files, commands and the web.

    add_ambient_endpoints(app, ClaudeBridge(permission_mode="default"))

`docs/agents/claude.md` lists the settings.
"""

from __future__ import annotations

from ambient_runner.bridges.claude.bridge import ClaudeBridge
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping

__all__ = ["ClaudeBridge", "PredictStateMapping"]
