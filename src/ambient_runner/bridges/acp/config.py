"""Options of an ACP agent: one value that is passed from the bridge to every part of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ambient_runner.bridges.acp.profiles import GENERIC, Profile, find_profile
from ambient_runner.errors import ConfigError
from ambient_runner.processes.gateway_addresses import AllowedHosts
from ambient_runner.runs.lowering import PropRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.bridges.acp.modes import Mode

__all__ = ["PROP", "PROP_MEMBERS", "ACPConfig", "HomeChoice", "SandboxChoice", "parse_command"]

PROP = "acp"
"""The key of `forwardedProps` that the bridge reads."""
PROP_MEMBERS = ("cwd", "mode", "model", "options")
_MODE_OPTIONS = frozenset({"mode", "collaboration_mode"})
"""Config options of agents that decide what they may do without asking."""

HomeChoice = Literal["auto", "user", "thread"]
SandboxChoice = Literal["auto", "required", "off"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ACPConfig:
    """The options of an ACPBridge. Durations are seconds."""

    profile: str = ""
    """Name of a known agent (`profiles.py`), such as `codex`."""
    command: Sequence[str] = ()
    """The command of the agent; empty for that of the profile."""
    mode: Mode = "default"
    """The permission mode: the calls that need no permission, and the limits of the sandbox."""
    model: str = ""
    """The model of the agent; empty for the server's setting, else the agent's own choice."""
    models: Sequence[str] = ()
    """Models that `forwardedProps.acp.model` may name; `*` allows any."""
    options: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"])
    """Config options of the agent, by id."""
    client_options: Sequence[str] = ()
    """Ids of config options that `forwardedProps.acp.options` may set."""
    cwd: str = ""
    """An existing directory that the agent works in; empty for the workspace of each thread."""
    roots: Sequence[str] = ()
    """Directories below which `forwardedProps.acp.cwd` may lie; empty refuses it."""
    home: HomeChoice = "auto"
    """The agent's home directory: the user's own, with its login, or one for each thread. `auto`: the user's own, unless others than this
    machine can connect or a key for its model is known."""
    sandbox: SandboxChoice = "auto"
    """`required` refuses to run without a sandbox; `off` starts none."""
    network: Sequence[str] = ()
    """Hosts that the agent may reach from its sandbox besides its model."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables for every process of the agent, in addition to those granted to a run."""
    pass_env: Sequence[str] = ()
    """Names of further variables of the server that the agent gets, in addition to those of its profile."""
    start_timeout: float = 60.0
    """Limit for the start of the agent and of its session."""
    turn_timeout: float = 600.0
    """Longest time without any message of the agent while no tool works."""
    interrupt_timeout: float = 3600.0
    """Time until an interrupt expires."""
    parked: int = 8
    """Maximum number of processes that wait for an answer at the same time."""
    processes: int = 8
    """Maximum number of other processes. Idle ones are ended first."""
    spare: int = 0
    """Number of processes that are started ahead for new threads, if these can share them. They count in `processes`."""

    @property
    def known_agent(self) -> Profile:
        """The profile, or that of an agent nothing is known about. Raises: ConfigError."""
        return find_profile(self.profile) if self.profile else GENERIC

    @property
    def base_command(self) -> tuple[str, ...]:
        """The command. A relative path is one of the server's directory, not of the thread's."""
        command = tuple(self.command) or self.known_agent.command
        is_path = bool(command) and "/" in command[0]
        return (str(Path(command[0]).absolute()), *command[1:]) if is_path else command

    @property
    def prop_rules(self) -> dict[str, PropRule]:
        """The keys of `forwardedProps` that the bridge reads."""
        return {PROP: PropRule(members=PROP_MEMBERS, setting="forwarded_props")}

    def allows_model(self, model: str) -> bool:
        """Return True if a client may choose this model."""
        return "*" in self.models or model in self.models

    def check(self) -> None:
        """Raise ConfigError for options that cannot work."""
        if not self.base_command:
            raise ConfigError(
                'ACPBridge needs a profile or a command. Write profile = "codex", or command = ["my-agent", "--acp"].'
            )
        if self.cwd and not (Path(self.cwd).is_absolute() and Path(self.cwd).is_dir()):
            raise ConfigError(
                f"cwd of ACPBridge is {self.cwd!r}, which is not an existing directory. Write an absolute path."
            )
        for option in (*self.options, *self.client_options):
            if option in _MODE_OPTIONS:
                raise ConfigError(f"The agent's option {option} is set by the permission mode. Use `mode` instead.")
        self._check_limits()
        try:
            AllowedHosts(self.network)
        except ValueError as error:
            raise ConfigError(f"network of ACPBridge: {error}") from error

    def _check_limits(self) -> None:
        for name, count in (("parked", self.parked), ("processes", self.processes)):
            if count < 1:
                raise ConfigError(f"{name} of ACPBridge must be at least 1.")
        if not 0 <= self.spare < self.processes:
            raise ConfigError("spare of ACPBridge must be at least 0 and less than `processes`.")
        for name, seconds in (
            ("start_timeout", self.start_timeout),
            ("turn_timeout", self.turn_timeout),
            ("interrupt_timeout", self.interrupt_timeout),
        ):
            if seconds <= 0:
                raise ConfigError(f"{name} of ACPBridge must be more than 0 seconds.")


def parse_command(text: str) -> tuple[str, ...]:
    """Return the words of a command line such as `my-agent --acp`. Raises: ConfigError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"The command {text!r} cannot be read: {error}. Close its quotes.") from error
    if not words:
        raise ConfigError("acp: needs a command. Write acp:my-agent --acp")
    return words
