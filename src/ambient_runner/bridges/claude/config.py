"""Settings of a Claude agent: one value that is passed from the bridge to every part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ambient_runner.runs.lowering import PropRule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from claude_agent_sdk import ClaudeAgentOptions
    from claude_agent_sdk.types import PermissionMode, SettingSource

    from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping

__all__ = ["PASSED_VARIABLES", "ClaudeConfig", "StateToolOffer"]

_ANY_MODEL = "*"
"""Allows every model in `models`."""

StateToolOffer = Literal["shared", "always", "never"]

PASSED_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "SSL_CERT_FILE",
)
"""Variables of the server that the CLI needs to reach the model, where they are set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaudeConfig:
    """The settings of a ClaudeBridge. Durations are seconds."""

    permission_mode: PermissionMode = "acceptEdits"
    tools: Sequence[str] | None = None
    """The CLI's own tools that are available; None for all of them."""
    allowed_tools: Sequence[str] = ()
    """Tools, or rules such as `Bash(git status)`, that need no permission."""
    disallowed_tools: Sequence[str] = ()
    setting_sources: Sequence[SettingSource] = ()
    """Settings files that the CLI reads. A workspace's own can run commands, so none is read unless it is listed."""
    models: Collection[str] = ()
    """Models that `forwardedProps.model` may name; `*` allows any."""
    verbatim: bool = True
    """True if user messages are passed on literally: `@file` is not read and `/command` is not run."""
    state_tool: StateToolOffer = "shared"
    """Runs in which Claude can change the shared state: those that have state, all or none."""
    predict_state: Sequence[PredictStateMapping] = ()
    """Tool arguments that clients show as state while Claude writes them, and that are the state afterwards."""
    start_timeout: float = 30.0
    """Limit for the start of the CLI."""
    turn_timeout: float = 600.0
    """Longest time without any message of the CLI while it works."""
    interrupt_timeout: float = 600.0
    """Time until an interrupt expires."""
    max_waiting_processes: int = 8
    """Maximum number of processes that wait for an answer at the same time."""
    cli_path: str | Path | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables for every CLI process, in addition to those granted to a run."""
    pass_env: Sequence[str] = ()
    """Names of further variables of the server that the CLI gets, in addition to those it needs to reach the model."""
    options: ClaudeAgentOptions | None = field(default=None, repr=False)
    """Other options of the SDK: agents, hooks, thinking, a sandbox. The settings above override them."""

    def allows_model(self, model: str) -> bool:
        """Return True if a client may choose this model."""
        return _ANY_MODEL in self.models or model in self.models

    @property
    def prop_rules(self) -> dict[str, PropRule]:
        """The keys of `forwardedProps` that the bridge reads."""
        return {"model": PropRule(values=None if _ANY_MODEL in self.models else tuple(self.models), setting="models")}
