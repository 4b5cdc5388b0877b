"""The isolation of an agent: the limits of its files and its network, and who enforces them.

With bubblewrap the operating system does, and the agent reaches its model through a gateway that puts the key in. Without it, the agent's
own sandbox counts, where it has one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ambient_runner.bridges.acp import tool_relay
from ambient_runner.bridges.acp.modes import sandbox_limit
from ambient_runner.processes.bubblewrap import check_bubblewrap
from ambient_runner.processes.program_files import find_program_files, find_python_files
from ambient_runner.processes.sandbox import GATEWAY_PORT, Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.bridges.acp.config import ACPConfig
    from ambient_runner.bridges.acp.home import AgentHome
    from ambient_runner.bridges.acp.modes import Mode
    from ambient_runner.bridges.acp.profiles import Profile

__all__ = ["GATEWAY_URL", "PLACEHOLDER", "Isolation", "choose_isolation"]

GATEWAY_URL = f"http://127.0.0.1:{GATEWAY_PORT}"
"""The address of the gateway inside a sandbox."""
PLACEHOLDER = "ambient-placeholder-key"
"""The key that an agent has if the gateway puts the real one in."""

Enforcer = Literal["bubblewrap", "agent", "nobody"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolation:
    """The limits of one process."""

    enforced_by: Enforcer
    workspace: Literal["read", "write"] = "write"
    network: Literal["none", "gateway", "all"] = "all"
    hosts: tuple[str, ...] = ()
    """Hosts that the gateway lets through besides the model's."""
    base_url: str = ""
    """The model provider's URL, to which the gateway forwards requests; empty if the agent has no key."""
    key: str = field(default="", repr=False)
    """The real key."""

    @property
    def has_sandbox(self) -> bool:
        return self.enforced_by == "bubblewrap"

    @property
    def hides_key(self) -> bool:
        """True if the agent has a placeholder in place of the key."""
        return self.network == "gateway" and bool(self.key)

    def describe(self) -> dict[str, Any]:
        """Return the value of `acp:session` for clients: who enforces which limits."""
        files = {"read": "nothing writable", "write": "workspace writable"}[self.workspace]
        if self.enforced_by == "nobody":
            return {"enforcedBy": "nobody", "files": "not limited", "network": "not limited"}
        network = {"none": "none", "gateway": "model only", "all": "not limited"}[self.network]
        allowed = {"hosts": list(self.hosts)} if self.hosts and self.network == "gateway" else {}
        return {"enforcedBy": self.enforced_by, "files": files, "network": network, **allowed}

    def gateway_headers(self, profile: Profile) -> dict[str, str]:
        """Return the headers that carry the key to the provider."""
        return {
            name: f"Bearer {self.key}" if name == "authorization" else self.key
            for name in profile.key_headers
            if self.key
        }

    def build_sandbox(
        self,
        command: Sequence[str],
        *,
        cwd: str,
        directories: Sequence[str],
        home: AgentHome,
        profile: Profile,
        hidden: Sequence[str],
        sockets: Sequence[Path],
        gateway: Path | None,
        search_path: str | None,
    ) -> Sandbox:
        """Return the sandbox of a process. Sockets are those that it may connect to."""
        own_directories = [home.path / name for name in profile.home_directories]
        return Sandbox(
            workspace=Path(cwd),
            workspace_access=self.workspace,
            home=home.path if home.is_own else None,
            writable=[
                *([] if home.is_own else [path for path in own_directories if path.exists()]),
                *(map(Path, directories) if self.workspace == "write" else ()),
            ],
            readable=[
                *find_program_files(command[0], search_path),
                *(Path(word) for word in command[1:] if word.startswith("/") and Path(word).is_file()),
                *find_python_files(),
                Path(tool_relay.__file__).resolve(),
                *map(Path, directories),
            ],
            hidden=[*map(Path, hidden), Path(tempfile.gettempdir())],
            sockets=list(sockets),
            network=self.network,
            gateway=gateway,
        )


def choose_isolation(config: ACPConfig, profile: Profile, mode: Mode, variables: Mapping[str, str]) -> Isolation:
    """Return the isolation of a process with these variables in this mode."""
    limit = sandbox_limit(mode)
    if config.sandbox == "off" or limit.workspace == "all":
        return Isolation(enforced_by="nobody")
    if check_bubblewrap().path is None:
        return Isolation(
            enforced_by="agent" if profile.has_sandbox else "nobody",
            workspace="write" if limit.workspace == "write" else "read",
            network="all" if limit.has_network or not profile.has_sandbox else "none",
        )
    key = variables.get(profile.key_variable, "") if profile.key_variable else ""
    hosts = (*config.network, *(() if key else profile.login_hosts))
    is_open = limit.has_network or (not profile.name and not config.network)
    return Isolation(
        enforced_by="bubblewrap",
        workspace="write" if limit.workspace == "write" else "read",
        network="all" if is_open else "gateway",
        hosts=() if is_open else hosts,
        base_url=(variables.get(profile.base_url_variable) or profile.default_base_url) if key else "",
        key="" if is_open else key,
    )
