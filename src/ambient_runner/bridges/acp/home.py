"""The home directory of an agent: the user's own, with its login, or one for each thread, with settings written by us."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ambient_runner.config.private_dir import make_private_dir
from ambient_runner.files.safe_files import make_directory, read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.config import ACPConfig
    from ambient_runner.bridges.acp.profiles import Profile
    from ambient_runner.bridges.base import PlatformContext

__all__ = ["AgentHome", "find_home"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentHome:
    """A home directory. `files` are written into it before a process starts; the user's own is never written to."""

    path: Path
    is_own: bool = False
    """True if it belongs to the thread, and is deleted with it."""
    files: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def variables(self, profile: Profile) -> dict[str, str]:
        """Return the variables that name the directory."""
        name, _, directory = profile.home_variable.partition("=")
        own = {name: str(self.path / directory)} if self.is_own and name else {}
        return {"HOME": str(self.path), **own}

    def write(self) -> None:
        """Create the directory with its files. Links that the agent has put in it are not followed. Blocks.

        Raises: OSError; ServiceError when something else is in the place of a directory.
        """
        if not self.is_own:
            return
        make_private_dir(self.path.parent)
        make_directory(self.path.parent)
        make_directory(self.path)
        for name, text in self.files.items():
            _write_below(self.path, PurePosixPath(name), text.encode())


def _write_below(root: Path, name: PurePosixPath, data: bytes) -> None:
    """Write a file below a directory that the agent can change, unless it has this content."""
    for parent in list(reversed(name.parents))[1:]:
        make_directory(root / parent)
    with suppress(ValueError):  # Too large, or no regular file: it is replaced.
        if read_file(root, name, len(data)) == data:
            return
    write_file(root / name, data)


def find_home(config: ACPConfig, profile: Profile, ctx: PlatformContext, user_home: str, *, has_key: bool) -> AgentHome:
    """Return the home of a thread's agent, without its files.

    `auto`: the user's own, unless others than this machine can connect, or a key makes a login unnecessary.
    """
    is_own = config.home == "thread" or (config.home == "auto" and (ctx.serves_others or has_key))
    if not is_own or not ctx.workspace_path:
        return AgentHome(path=Path(user_home or "/"))
    return AgentHome(path=Path(ctx.workspace_path) / ".ambient" / f"home-{profile.name or 'agent'}", is_own=True)
