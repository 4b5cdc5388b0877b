"""Permission modes: what an agent may do without asking, and how each agent is told so. Tables only, in both directions.

A mode has two sides. The agent asks for what the mode does not cover, and the sandbox is the limit that no answer exceeds. Where an agent
has no mode of its own that fits, it asks about everything and we answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MODES",
    "AgentMode",
    "FilePart",
    "Mode",
    "SandboxLimit",
    "agent_mode",
    "answers_without_asking",
    "is_widened",
    "is_wider",
    "mode_of",
    "parse_mode",
    "sandbox_limit",
]

Mode = Literal["default", "plan", "accept-edits", "bypass", "yolo"]
MODES: tuple[Mode, ...] = ("plan", "default", "accept-edits", "bypass", "yolo")
"""All modes, from the narrowest to the widest."""

_ALIASES: dict[str, Mode] = {
    **{mode.replace("-", ""): mode for mode in MODES},
    "bypasspermissions": "bypass",
    "danger": "yolo",
    "dangerfullaccess": "yolo",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxLimit:
    """Limits of the sandbox of a mode, whatever the agent is answered."""

    workspace: Literal["read", "write", "all"]
    """Access to the workspace; `all` is no sandbox."""
    has_network: bool = False
    """True if the agent can connect to any host; False if only to its model and the hosts of the settings."""


_LIMITS: dict[Mode, SandboxLimit] = {
    "plan": SandboxLimit(workspace="read"),
    "default": SandboxLimit(workspace="write"),
    "accept-edits": SandboxLimit(workspace="write"),
    "bypass": SandboxLimit(workspace="write", has_network=True),
    "yolo": SandboxLimit(workspace="all", has_network=True),
}
_READING = frozenset({"read", "search"})
_ANSWERED_KINDS: dict[Mode, frozenset[str]] = {
    "plan": _READING,
    "default": _READING,
    "accept-edits": _READING | {"edit"},
}
"""Kinds of calls that are allowed without asking. Modes that are not listed allow all."""
_QUESTION_KIND = "switch_mode"
"""The kind of a call that asks a person to leave a mode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePart:
    """Lines for a TOML file: keys before its first table, and tables after its last."""

    keys: str = ""
    tables: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentMode:
    """A mode in the terms of one agent."""

    mode_id: str = ""
    """Id of its session mode, or value of its config option `mode`; empty if it has none."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other config options of the session, by id."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of its process."""
    files: Mapping[str, FilePart] = field(default_factory=dict[str, FilePart])
    """Parts of its configuration files, by their path in its home directory."""
    is_answered: bool = False
    """True if it asks about what the mode allows, and we answer."""

    def merge_files(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return the files of a home directory with the parts of this mode."""
        parts = {path: part.keys + files.get(path, "") + part.tables for path, part in self.files.items()}
        return {**files, **parts}


def _codex_mode(mode_id: str, collaboration: str = "default", part: FilePart | None = None) -> AgentMode:
    return AgentMode(
        mode_id=mode_id,
        options={"collaboration_mode": collaboration},
        variables={"INITIAL_AGENT_MODE": mode_id},
        files={".codex/config.toml": part} if part else {},
    )


_CODEX_NETWORK = FilePart(
    keys='approval_policy = "never"\ndefault_permissions = "ambient"\n',
    tables='\n[permissions.ambient]\nextends = ":workspace"\n\n[permissions.ambient.network]\nenabled = true\n',
)
"""A workspace with network exists for Codex only as a permission profile. Codex refuses a file with profiles and no default one."""

_CODEX: dict[Mode, AgentMode] = {
    "plan": _codex_mode("read-only", "plan"),
    "default": _codex_mode("read-only"),
    "accept-edits": _codex_mode("workspace-write"),
    "bypass": _codex_mode("permission-profile:ambient", part=_CODEX_NETWORK),
    "yolo": _codex_mode("agent-full-access"),
}

_CLAUDE: dict[Mode, AgentMode] = {
    "plan": AgentMode(mode_id="plan"),
    "default": AgentMode(mode_id="default"),
    "accept-edits": AgentMode(mode_id="acceptEdits"),
    "bypass": AgentMode(mode_id="default", is_answered=True),
    "yolo": AgentMode(mode_id="default", is_answered=True),
}

_GEMINI: dict[Mode, AgentMode] = {
    "plan": AgentMode(mode_id="plan"),
    "default": AgentMode(mode_id="default"),
    "accept-edits": AgentMode(mode_id="autoEdit"),
    "bypass": AgentMode(mode_id="default", is_answered=True),
    "yolo": AgentMode(mode_id="yolo"),
}

_OPENCODE_READING = {
    "read": {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"},
    **dict.fromkeys(("glob", "grep", "list", "lsp", "skill", "todoread", "todowrite"), "allow"),
}


def _opencode_mode(mode_id: str, edit: str, others: str) -> AgentMode:
    """Return a mode with its permissions in a variable, which wins over the files of the user and of the workspace.

    The first entry is for all tools that are not named, such as those of MCP servers.
    """
    named = {"edit": edit, "bash": others, "webfetch": others}
    permissions = {"*": others, **named} if others == "allow" else {"*": others, **_OPENCODE_READING, **named}
    return AgentMode(mode_id=mode_id, variables={"OPENCODE_PERMISSION": json.dumps(permissions)})


_OPENCODE: dict[Mode, AgentMode] = {
    "plan": _opencode_mode("plan", "deny", "ask"),
    "default": _opencode_mode("build", "ask", "ask"),
    "accept-edits": _opencode_mode("build", "allow", "ask"),
    "bypass": _opencode_mode("build", "allow", "allow"),
    "yolo": _opencode_mode("build", "allow", "allow"),
}

_TABLES: dict[str, dict[Mode, AgentMode]] = {
    "codex": _CODEX,
    "claude-acp": _CLAUDE,
    "gemini": _GEMINI,
    "opencode": _OPENCODE,
}
_WIDEST_IDS = {"claude-acp": "bypassPermissions"}
"""Modes in which an agent asks about nothing, and that no mode of ours uses."""


def parse_mode(value: object) -> Mode:
    """Return the mode of this name, in any case and with `-`, `_` or neither. Raises: ConfigError, naming the nearest one."""
    name = value.replace("-", "").replace("_", "").casefold() if isinstance(value, str) else ""
    if name not in _ALIASES:
        known = list(get_args(Mode))
        hint = did_you_mean(str(value).casefold(), known, 0.6) or f" The modes are {', '.join(known)}."
        raise ConfigError(f"There is no permission mode {value!r}.{hint}")
    return _ALIASES[name]


def agent_mode(profile: str, mode: Mode, *, asks: bool = False) -> AgentMode:
    """Return a mode in the terms of an agent. An agent without a profile is told nothing; we answer what it asks.

    With `asks` the agent asks about as much as it can, and we answer what the mode allows: there are rules to apply.
    """
    table = _TABLES.get(profile)
    if table is None:
        return AgentMode(is_answered=True)
    return replace(table["default"], is_answered=True) if asks and is_wider(mode, "default") else table[mode]


def mode_of(
    profile: str, agent_mode_id: str, options: Mapping[str, str] | None = None, *, current: Mode | None = None
) -> Mode | None:
    """Return our mode for one of an agent; None if it is not in the table, such as one in which another model approves calls.

    `options` are the current values of the session's config options. If several modes fit, it is `current`, or the narrowest.
    """
    if agent_mode_id == _WIDEST_IDS.get(profile):
        return "yolo"
    given = options or {}
    fitting: list[Mode] = [mode for mode in MODES if _is_told(_TABLES.get(profile, {}).get(mode), agent_mode_id, given)]
    if current in fitting:
        return current
    return fitting[0] if fitting else None


def _is_told(cell: AgentMode | None, mode_id: str, options: Mapping[str, str]) -> bool:
    return (
        cell is not None
        and cell.mode_id == mode_id
        and all(options.get(name, "default") == value for name, value in cell.options.items())
    )


def is_wider(mode: Mode, than: Mode) -> bool:
    """Return True if a mode allows more than another."""
    return MODES.index(mode) > MODES.index(than)


def is_widened(profile: str, mode: Mode, agent_mode_id: str, options: Mapping[str, str] | None = None) -> bool:
    """Return True if an agent is in a mode that is wider than ours, or unknown. It must be set back.

    Nothing is known about the modes of an agent without a profile.
    """
    found = mode_of(profile, agent_mode_id, options, current=mode)
    return profile in _TABLES and (found is None or is_wider(found, mode))


def sandbox_limit(mode: Mode) -> SandboxLimit:
    """Return what the sandbox of a mode allows."""
    return _LIMITS[mode]


def answers_without_asking(mode: Mode, kind: str) -> bool:
    """Return True if a mode allows calls of this kind without a person. `permission_calls.is_allowed_by_mode` also checks the files."""
    return kind != _QUESTION_KIND and (mode not in _ANSWERED_KINDS or kind in _ANSWERED_KINDS[mode])
