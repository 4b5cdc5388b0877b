"""The bridge to agents of the Agent Client Protocol: Codex, Gemini CLI, OpenCode, Claude Code and any other command that speaks it.

    add_ambient_endpoints(app, ACPBridge("codex", mode="plan"))

`docs/agents/acp.md` lists the settings.
"""

from __future__ import annotations

from ambient_runner.bridges.acp.bridge import ACPBridge

__all__ = ["ACPBridge"]
