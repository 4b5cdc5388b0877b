"""The platform services of one server, created from the settings and opened and closed together.

This module connects services and bridges: what set-up prepared for a run becomes the PlatformContext of its adapter.
Servers without file agents pay nothing: git, workspaces and their locks are not imported.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool
from ambient_runner.config import CONFIG_FILE, git_environment
from ambient_runner.config.loader import agent_name, did_you_mean
from ambient_runner.errors import ConfigError, UnknownThread
from ambient_runner.ledger.sqlite.connection import database_path
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.events import Custom
from ambient_runner.runs.server_secrets import ServerSecrets
from ambient_runner.services.credentials import fetch_credentials, from_url, register_secrets
from ambient_runner.services.mcp.config import McpConfig, config_file_problem
from ambient_runner.services.mcp.status import McpStatus
from ambient_runner.services.recent_grants import RecentGrants
from ambient_runner.services.setup import Setup
from ambient_runner.services.system_prompt import build_system_prompt

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

    from ambient_runner.bridges.base import FrameworkCapabilities
    from ambient_runner.config import Settings
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.protocol.events import Message, Tool
    from ambient_runner.runs.run import GrantCredentials, Run
    from ambient_runner.runs.runner import Runner
    from ambient_runner.services.credentials import Credentials, RequestScope
    from ambient_runner.services.mcp.config import ResolvedMcpServers, ThreadServers
    from ambient_runner.services.platform_facts import PlatformFact
    from ambient_runner.services.workspaces.repos import Repos
    from ambient_runner.services.workspaces.uploads import WorkspaceFiles
    from ambient_runner.services.workspaces.workflows import Workflows
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["FileServices", "Platform", "RequestGrants"]

_OWN_DIRECTORY = ".ambient"
"""The directory of the default store. Nothing else is in it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileServices:
    """The services of agents that have files."""

    workspaces: Workspaces
    repos: Repos
    workflows: Workflows
    files: WorkspaceFiles


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestGrants:
    """Credentials of one request that is not a run. They are redacted in its responses and discarded with it."""

    environment: dict[str, str] = field(repr=False)
    redactor: Redactor = field(repr=False)


class Platform:
    """Platform services for the routes and runs of one server. `running` opens them."""

    def __init__(
        self,
        settings: Settings,
        agents: Mapping[str, FrameworkCapabilities],
        secrets: Secrets,
        *,
        credentials: Credentials | None = None,
        mcp: ThreadServers | None = None,
        custom_tools: Sequence[Any] = (),
        remote: Collection[str] = (),
        serves_others: bool = False,
    ) -> None:
        """`remote` are the agents that run on another server, which prepares their runs and has their files.

        `serves_others`: other machines can connect.
        """
        local = {name: _without_files(agent) if name in remote else agent for name, agent in agents.items()}
        self.file_services = (
            _create_file_services(settings) if any(agent.file_system for agent in local.values()) else None
        )
        self.has_mcp = any(agent.mcp for agent in local.values())
        self._runner: Runner | None = None
        self._settings = settings
        _warn_of_rules(settings, agents)
        self._serves_others = serves_others
        self._agents = agents
        self._capability_events: dict[str, Custom] = {}
        """By agent; built once."""
        self._tools = list(custom_tools)
        self._credentials = credentials or _credentials_from_settings(settings)
        self._recent_grants = RecentGrants()
        self.secrets = ServerSecrets(secrets, self._granted_values)
        self._mcp_config = McpConfig(_mcp_config_file(settings), project=settings.mcp_project, thread=mcp)
        self._mcp_status = McpStatus()
        self.setup = Setup(
            agents=local,
            workspaces=self.file_services.workspaces if self.file_services else None,
            mcp=self._mcp_config,
            credentials=self._credentials,
            recent=self._recent_grants,
            messages=self._thread_messages,
            uploads=self._upload_paths,
            system_prompt=settings.system_prompt,
        )

    @asynccontextmanager
    async def running(self, runner: Runner) -> AsyncGenerator[None, None]:
        """Open the services. `runner` owns the threads they refer to."""
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
        """Cancel the jobs that requests have started: the server waits for their responses before it closes."""
        self._mcp_status.cancel_all()
        if self.file_services is not None:
            self.file_services.workspaces.jobs.cancel_all()

    def features_of(self, *agents: str) -> list[str]:
        """Return the optional features that a front end of one of these agents may show."""
        declared = [self._agents[name] for name in agents if name in self._agents]
        files = ["repos", "workflows", "files", "artifacts"] if any(agent.file_system for agent in declared) else []
        return [*files, *(["mcp_diagnostics"] if any(agent.mcp for agent in declared) else [])]

    def capability_events(self, run: Run) -> list[Custom]:
        """Return the `ambient:capabilities` event of a new thread, so that a front end need not request it."""
        if run.agent not in self._agents:
            return []
        if run.agent not in self._capability_events:
            framework = asdict(self._agents[run.agent])
            value = {"framework": framework, "platform": {"features": self.features_of(run.agent)}}
            self._capability_events[run.agent] = Custom(name="ambient:capabilities", value=value)
        return [self._capability_events[run.agent]]

    def build_context(self, run: Run) -> PlatformContext:
        """Return the PlatformContext of a run's adapter. A run without set-up gets only the settings."""
        prepared, settings = self.setup.prepared_run(run), self._settings
        workspace, operator_prompt = prepared.workspace, build_system_prompt(None, extra=settings.system_prompt)
        return PlatformContext(
            workspace_path=str(workspace.path) if workspace else "",
            cwd_path=settings.cwd or (str(workspace.cwd_path) if workspace else ""),
            add_dirs=[str(directory) for directory in workspace.add_dirs] if workspace else [],
            model=settings.model,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            system_prompt_append=operator_prompt if settings.cwd else prepared.system_prompt,
            operator_prompt=operator_prompt if workspace else "",
            mcp_servers=prepared.mcp.configs,
            custom_tools=list(self._tools),
            session_id=run.thread.id,
            permissions=settings.permissions,
            audience=settings.audience_for(run.agent, serves_others=self._serves_others),
            serves_others=self._serves_others,
            hidden_paths=_hidden_paths(settings) if workspace else [],
        )

    @property
    def grant_credentials(self) -> GrantCredentials | None:
        """Gives a run its credentials; None if this server has no source of them."""
        return self.setup.grant_credentials if self._credentials else None

    async def grants_for_request(self, scope: RequestScope, tokens: Mapping[str, str]) -> RequestGrants:
        """Return the credentials of a request that is not a run: those of its actor and its own tokens. Raises: CredentialsError."""
        secrets = self.secrets.for_thread(scope.thread)
        await to_thread.run_sync(register_secrets, secrets, tokens)  # A client chooses them.
        granted = await fetch_credentials(self._credentials, scope, secrets, self._recent_grants)
        environment = {**granted, **tokens}
        return RequestGrants(environment=environment, redactor=Redactor(secrets))

    async def mcp_status(self, scope: RequestScope) -> list[dict[str, Any]]:
        """Return the status of a thread's MCP servers, each probed now. Raises: ServiceError, Draining."""
        servers, directory, clean = await self._resolve_mcp_servers(scope)
        return clean(await self._mcp_status.probe(servers, directory, subject=scope.thread, redact=clean))

    async def mcp_tools(self, scope: RequestScope, tool_name: Callable[[str, str], str]) -> list[Tool]:
        """Return the declarations of the tools of a thread's MCP servers, each probed now.

        `tool_name` returns the agent's name for a tool of a server. Raises: ServiceError, Draining.
        """
        servers, directory, clean = await self._resolve_mcp_servers(scope)
        found = clean(await self._mcp_status.list_tools(servers, directory, subject=scope.thread, redact=clean))
        return [
            declare_mcp_tool(
                tool_name(tool["server"], tool["name"]),
                tool["description"],
                tool["inputSchema"],
                server=tool["server"],
            )
            for tool in found
        ]

    async def _resolve_mcp_servers(
        self, scope: RequestScope
    ) -> tuple[ResolvedMcpServers, Path | None, Callable[[Any], Any]]:
        """Return the MCP servers of a thread, the directory they start in, and the function that redacts what they return."""
        grants = await self.grants_for_request(scope, {})
        workspace = await self.file_services.workspaces.snapshot(scope.thread) if self.file_services else None
        directory = workspace.cwd_path if workspace else None
        servers = await self._mcp_config.resolve_for_thread(scope.thread, directory, grants.environment)
        return servers, directory, grants.redactor.redact_value

    async def append_fact(self, thread: ThreadKey, fact: PlatformFact) -> None:
        """Store a fact for the readers of the thread. Before the first run there is no thread: that run's set-up reports the state."""
        if self._runner is not None:
            with suppress(UnknownThread):
                await self._runner.append_platform_fact(thread, *fact)

    async def startup_prompt(self, agent: str, thread: ThreadKey) -> str:
        """Return the workflow's prompt for a first run without user message; empty if there is none. Raises: ServiceError."""
        if self.file_services is None or agent not in self._agents or not self._agents[agent].file_system:
            return ""
        workspace = await self.file_services.workspaces.snapshot(thread)
        return workspace.workflow.config.startup_prompt if workspace and workspace.workflow else ""

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Erase a thread's workspace with everything in it. Raises: ServiceError if something remains."""
        self.setup.evict_thread(thread)
        if self.file_services is not None:
            await self.file_services.workspaces.erase_thread(thread)

    async def has_workspace(self, thread: ThreadKey) -> bool:
        return self.file_services is not None and await self.file_services.workspaces.has_files(thread)

    def _granted_values(self, thread: ThreadKey) -> list[str]:
        return self._recent_grants.values_of(thread.tenant, thread.owner)

    async def _thread_messages(self, thread: ThreadKey) -> list[Message]:
        return (await self._runner.view_thread(thread)).transcript.messages() if self._runner else []

    async def _upload_paths(self, thread: ThreadKey) -> tuple[str, ...]:
        return await self.file_services.files.list_user_uploads(thread) if self.file_services else ()


def _warn_of_rules(settings: Settings, agents: Collection[str]) -> None:
    """Log the rules for an agent that is not served, if the name seems to be misspelled."""
    names = {rule.agent for rule in settings.permissions if rule.agent} - set(agents)
    for name in sorted(names - {agent_name(agent) for agent in settings.configured_agents}):
        if hint := did_you_mean(name, list(agents), 0.6):
            logger.warning("A permission rule is for the agent %r, which this server does not have.%s", name, hint)


def _hidden_paths(settings: Settings) -> list[str]:
    """Return the paths that no agent may see: the workspaces, of which an agent gets its own again, the database and the settings."""
    return [str(path.absolute()) for path in (Path(settings.workspace), Path(CONFIG_FILE), *_store_paths(settings))]


def _store_paths(settings: Settings) -> list[Path]:
    """Return the files of the database, or their directory if it is one of our own."""
    database = database_path(settings.store)
    if database is None:
        return []
    if database.absolute().parent.name == _OWN_DIRECTORY:
        return [database.parent]
    return [database.with_name(f"{database.name}{suffix}") for suffix in ("", "-wal", "-shm")]


def _without_files(agent: FrameworkCapabilities) -> FrameworkCapabilities:
    """Return the capabilities of an agent that needs nothing prepared here."""
    return replace(agent, file_system=False, mcp=False)


def _create_file_services(settings: Settings) -> FileServices:
    from ambient_runner.services.workspaces.clone_sources import SourceRules
    from ambient_runner.services.workspaces.repos import Repos
    from ambient_runner.services.workspaces.uploads import WorkspaceFiles
    from ambient_runner.services.workspaces.workflows import Workflows
    from ambient_runner.services.workspaces.workspaces import Workspaces

    rules = SourceRules(schemes=settings.git_schemes, hosts=settings.git_hosts, allow_private=settings.git_private)
    workspaces = Workspaces(Path(settings.workspace), rules=rules, git_environment=git_environment())
    return FileServices(
        workspaces=workspaces,
        repos=Repos(workspaces),
        workflows=Workflows(workspaces),
        files=WorkspaceFiles(workspaces),
    )


def _mcp_config_file(settings: Settings) -> Path | None:
    file = Path(settings.mcp_config) if settings.mcp_config else None
    if file is not None and (problem := config_file_problem(file)):
        raise ConfigError(
            f"`mcp.config` names {file}, which {problem}. Correct the file or its path, or remove the setting."
        )
    return file


def _credentials_from_settings(settings: Settings) -> Credentials | None:
    return from_url(settings.credentials_url, settings.credentials_token) if settings.credentials_url else None
