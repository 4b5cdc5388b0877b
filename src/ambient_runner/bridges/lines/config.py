"""Settings of a command that prints lines: one value that is passed from the bridge to every part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PROMPT", "SESSION", "HomeChoice", "LinesConfig", "NotifyKind", "OutputFormat", "TurnEnd"]

PROMPT = "{prompt}"
"""Stands for the prompt in an argument of a command. Without it the prompt goes to the standard input."""
SESSION = "{session}"
"""Stands for the id of the agent's session in `resume_command`."""

_SHELLS = frozenset({"bash", "dash", "fish", "ksh", "sh", "zsh"})
_SCRIPT_OPTION = re.compile(r"-[a-z]*c")

OutputFormat = Literal["text", "json", "auto"]
TurnEnd = Literal["exit", "notify", "idle"]
NotifyKind = Literal["file", "fifo"]
HomeChoice = Literal["auto", "user", "thread"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesConfig:
    """The settings of a LinesBridge. Durations are seconds."""

    command: Sequence[str] = ()
    """The command of a turn. `{prompt}` in an argument is replaced; without it, the prompt goes to the standard input."""
    format: OutputFormat = "auto"
    """The output of the command: `text`, `json` (an object in each line), or what the first line shows."""
    resume_command: Sequence[str] = ()
    """The command of a turn that continues the agent's session: its id replaces `{session}`. Without it, the conversation is sent again."""
    end: TurnEnd = "exit"
    """The end of a turn: the exit of the command, a line in the file `AMBIENT_NOTIFY`, or silence after its first output."""
    notify: NotifyKind = "file"
    """Kind of the file `AMBIENT_NOTIFY` of a turn that ends with `notify`."""
    idle_seconds: float = 5.0
    """Silence after which a turn that ends with `idle` is over."""
    cwd: str = ""
    """An existing directory that the command works in; empty for the workspace of each thread."""
    home: HomeChoice = "auto"
    """The home directory of the command: the user's own, with its login, or one for each thread. `auto`: the user's own, unless others than
    this machine can connect."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables for every process, in addition to those granted to a run."""
    pass_env: Sequence[str] = ()
    """Names of further variables of the server that every process gets."""
    turn_timeout: float = 600.0
    """Longest time without any output."""
    processes: int = 8
    """Maximum number of processes at the same time."""

    @property
    def commands(self) -> list[Sequence[str]]:
        """The commands that are set."""
        return [command for command in (self.command, self.resume_command) if command]

    def check(self) -> None:
        """Raise ConfigError for settings that cannot work."""
        self._check_choices()
        self._check_commands()
        if self.cwd and not (Path(self.cwd).is_absolute() and Path(self.cwd).is_dir()):
            raise ConfigError(f"cwd is {self.cwd!r}, which is not an existing directory. Write an absolute path.")
        for name, value in (("idle_seconds", self.idle_seconds), ("turn_timeout", self.turn_timeout)):
            if value <= 0:
                raise ConfigError(f"{name} of LinesBridge must be more than 0.")
        if self.processes < 1:
            raise ConfigError("processes of LinesBridge must be at least 1.")

    def _check_choices(self) -> None:
        for name, value, choice in (
            ("format", self.format, OutputFormat),
            ("end", self.end, TurnEnd),
            ("notify", self.notify, NotifyKind),
            ("home", self.home, HomeChoice),
        ):
            if value not in get_args(choice):
                choices = ", ".join(repr(allowed) for allowed in get_args(choice))
                raise ConfigError(f"{name} of LinesBridge cannot be {value!r}. Use one of {choices}.")

    def _check_commands(self) -> None:
        if not self.command:
            raise ConfigError('LinesBridge needs a command. Write command = ["my-cli", "--json"].')
        for command in self.commands:
            _check_script(command)
        if self.resume_command and not any(SESSION in word for word in self.resume_command):
            raise ConfigError(f"resume_command needs {SESSION}, where the id of the session goes.")
        if self.resume_command and self.format == "text":
            raise ConfigError('resume_command needs format = "json": the id of a session comes from a line of JSON.')


def _check_script(command: Sequence[str]) -> None:
    """Raise ConfigError if the prompt is part of a shell script: its author could write commands into it."""
    for place, word in enumerate(command):
        before = command[:place]
        is_script = bool(before) and _SCRIPT_OPTION.fullmatch(before[-1]) and any(map(_is_shell, before))
        if is_script and PROMPT in word:
            raise ConfigError(
                f"{PROMPT} must not be part of a shell script: users could write commands into it. "
                f'Let the script read its input, or write ["sh", "-c", "my-cli \\"$1\\"", "sh", "{PROMPT}"].'
            )


def _is_shell(word: str) -> bool:
    return Path(word).name in _SHELLS
