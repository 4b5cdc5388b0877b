"""The platform around the runs of one server: its services, made from the settings, opened and closed together.

Here services and bridges meet: what was made ready for a run becomes the PlatformContext its adapter is made with. Agents without files
cost nothing: git, workspaces and their locks are not even imported.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.config import git_environment
from ambient_runner.errors import ConfigError, ServiceError, UnknownThread
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.events import Custom
from ambient_runner.services.credentials import from_url, grant, learn
from ambient_runner.services.mcp.config import McpConfig, fault_of
from ambient_runner.services.mcp.status import McpStatus
from ambient_runner.services.setup import Setup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from ambient_runner.bridges.base import FrameworkCapabilities
    from ambient_runner.config import Settings
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.protocol.events import Message
    from ambient_runner.runs.run import Run
    from ambient_runner.runs.runner import Runner
    from ambient_runner.services.credentials import Credentials, Visit
    from ambient_runner.services.mcp.config import ThreadServers
    from ambient_runner.services.platform_facts import News
    from ambient_runner.services.workspaces.repos import Repos
    from ambient_runner.services.workspaces.uploads import Files
    from ambient_runner.services.workspaces.workflows import Workflows
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["FileServices", "Granted", "Platform"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileServices:
    """The services of agents that have files."""

    workspaces: Workspaces
    repos: Repos
    workflows: Workflows
    files: Files


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """What one request outside of runs may use. It is secret in what that request says, and forgotten with it."""

    environment: dict[str, str] = field(repr=False)
    redactor: Redactor = field(repr=False)


class Platform:
    """What the routes and the runs of one server stand on. `running` opens it."""

    def __init__(
        self,
        settings: Settings,
        agents: Mapping[str, FrameworkCapabilities],
        secrets: Secrets,
        *,
        credentials: Credentials | None = None,
        mcp: ThreadServers | None = None,
        custom_tools: Sequence[Any] = (),
    ) -> None:
        self.secrets = secrets
        self.file_services = _file_services(settings) if any(agent.file_system for agent in agents.values()) else None
        self.has_mcp = any(agent.mcp for agent in agents.values())
        self._runner: Runner | None = None
        self._not_erased: dict[ThreadKey, ServiceError] = {}
        self._settings = settings
        self._agents = agents
        self._tools = list(custom_tools)
        self._credentials = credentials or _from_settings(settings)
        self._mcp = McpConfig(_mcp_file(settings), project=settings.mcp_project, thread=mcp)
        self._mcp_status = McpStatus()
        self.setup = Setup(
            agents=agents,
            workspaces=self.file_services.workspaces if self.file_services else None,
            mcp=self._mcp,
            credentials=self._credentials,
            messages=self._messages,
            uploads=self._uploads,
            system_prompt=settings.system_prompt,
        )

    @asynccontextmanager
    async def running(self, runner: Runner) -> AsyncGenerator[None, None]:
        """Open the services. `runner` has the threads they speak of."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._mcp_status)
            if self.file_services is not None:
                await stack.enter_async_context(self.file_services.workspaces)
            self._runner = runner
            try:
                yield
            finally:
                self._runner = None

    def drain(self) -> None:
        """End what requests have begun: the server waits for their answers before it closes."""
        self._mcp_status.call_off()
        if self.file_services is not None:
            self.file_services.workspaces.jobs.call_off()

    @property
    def features(self) -> list[str]:
        """What front ends may show, beside what every server has."""
        files = ["repos", "workflows", "files", "artifacts"] if self.file_services else []
        return [*files, *(["mcp_diagnostics"] if self.has_mcp else [])]

    def introduction(self, run: Run) -> list[Custom]:
        """What the agent and this server can do, so that a front end need not ask for it."""
        can = self._agents.get(run.agent)
        value = {"framework": asdict(can), "platform": {"features": self.features}} if can else None
        return [Custom(name="ambient:capabilities", value=value)] if value else []

    def context(self, run: Run) -> PlatformContext:
        """What the adapter of this run is made with. A run that set-up has not seen gets the settings alone."""
        ready, settings = self.setup.of(run), self._settings
        space = ready.workspace
        return PlatformContext(
            workspace_path=str(space.path) if space else "",
            cwd_path=str(space.cwd_path) if space else "",
            add_dirs=[str(folder) for folder in space.add_dirs] if space else [],
            model=settings.model,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            system_prompt_append=ready.system_prompt,
            mcp_servers=ready.mcp.configs,
            custom_tools=list(self._tools),
            session_id=run.thread.id,
        )

    async def granted(self, visit: Visit, given: Mapping[str, str]) -> Granted:
        """What a request outside of runs may use: what its actor is granted, and what it brings itself. Raises: CredentialsError."""
        secrets = self.secrets.child()
        learn(secrets, given)
        environment = {**await grant(self._credentials, visit, secrets), **given}
        return Granted(environment=environment, redactor=Redactor(secrets))

    async def mcp_rows(self, visit: Visit) -> list[dict[str, Any]]:
        """The MCP servers of a thread, each really looked at. Raises: ServiceError, Draining."""
        granted = await self.granted(visit, {})
        space = await self.file_services.workspaces.snapshot(visit.thread) if self.file_services else None
        folder = space.cwd_path if space else None
        servers = await self._mcp.of(visit.thread, folder, granted.environment)
        clean = granted.redactor.redact_value
        return clean(await self._mcp_status.look(servers, folder, whom=visit.thread, clean=clean))

    async def note(self, thread: ThreadKey, news: News) -> None:
        """Tell whoever follows the thread. Before its first run nobody does: that run's set-up says what there is."""
        if self._runner is not None:
            with suppress(UnknownThread):
                await self._runner.note(thread, *news)

    async def startup_prompt(self, agent: str, thread: ThreadKey) -> str:
        """What the workflow of a thread begins with when nobody says anything; empty for nothing. Raises: ServiceError."""
        if self.file_services is None or agent not in self._agents or not self._agents[agent].file_system:
            return ""
        space = await self.file_services.workspaces.snapshot(thread)
        return space.workflow.config.startup_prompt if space and space.workflow else ""

    async def forget(self, thread: ThreadKey) -> None:
        """Erase what is kept of a thread here: its workspace with everything in it. Raises: ServiceError when something is left."""
        self.setup.forget(thread)
        self._not_erased.pop(thread, None)
        if self.file_services is not None:
            try:
                await self.file_services.workspaces.forget(thread)
            except ServiceError as error:
                self._not_erased[thread] = error
                raise

    def check_erased(self, thread: ThreadKey) -> None:
        """Say once what the last erasing of a thread has left: the Runner goes on when it fails. Raises: ServiceError."""
        error = self._not_erased.pop(thread, None)
        if error is not None:
            raise error

    async def has_workspace(self, thread: ThreadKey) -> bool:
        return self.file_services is not None and await self.file_services.workspaces.holds(thread)

    async def _messages(self, thread: ThreadKey) -> list[Message]:
        return (await self._runner.view(thread)).transcript.messages() if self._runner else []

    async def _uploads(self, thread: ThreadKey) -> tuple[str, ...]:
        return tuple(file.path for file in await self.file_services.files.uploads(thread)) if self.file_services else ()


def _file_services(settings: Settings) -> FileServices:
    from ambient_runner.services.workspaces.clone_sources import SourceRules
    from ambient_runner.services.workspaces.repos import Repos
    from ambient_runner.services.workspaces.uploads import Files
    from ambient_runner.services.workspaces.workflows import Workflows
    from ambient_runner.services.workspaces.workspaces import Workspaces

    rules = SourceRules(schemes=settings.git_schemes, hosts=settings.git_hosts, private=settings.git_private)
    workspaces = Workspaces(Path(settings.workspace), rules=rules, base=git_environment())
    return FileServices(
        workspaces=workspaces,
        repos=Repos(workspaces),
        workflows=Workflows(workspaces),
        files=Files(workspaces),
    )


def _mcp_file(settings: Settings) -> Path | None:
    file = Path(settings.mcp_config) if settings.mcp_config else None
    if file is not None and (fault := fault_of(file)):
        raise ConfigError(f"`mcp.config` names {file}, which {fault}. Correct the file or its path, or leave it out.")
    return file


def _from_settings(settings: Settings) -> Credentials | None:
    return from_url(settings.credentials_url, settings.credentials_token) if settings.credentials_url else None
