"""Set-up: prepares credentials, workspace, MCP servers and system prompt before the agent starts.

It is a middleware, and reports its stages to clients as they finish, after RUN_STARTED. Only the credentials are fetched before that
(`grant_credentials`), so that they are redacted from the run's first entries too. The result belongs to one run and is dropped with it:
a change of the workspace or of the MCP servers takes effect with the next run. Agents without files and MCP servers are passed through
unchanged.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.errors import LedgerError, RunnerError
from ambient_runner.protocol.events import (
    DeveloperMessage,
    RunError,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from ambient_runner.runs.run import RunAttribute, describe_run
from ambient_runner.services.credentials import fetch_credentials
from ambient_runner.services.mcp.config import ResolvedMcpServers
from ambient_runner.services.platform_facts import repo_added, setup_error, workflow_changed
from ambient_runner.services.system_prompt import build_system_prompt

if TYPE_CHECKING:
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.capabilities import DeclaredCapabilities
    from ambient_runner.protocol.events import Event, Message
    from ambient_runner.runs.run import Run, RunHandler
    from ambient_runner.services.credentials import Credentials
    from ambient_runner.services.mcp.config import McpConfig
    from ambient_runner.services.recent_grants import RecentGrants
    from ambient_runner.services.workspaces.workspaces import Workspace, Workspaces

__all__ = ["PreparedRun", "Setup"]

logger = logging.getLogger(__name__)

_MESSAGE_ID_PREFIX = "setup"
_MAX_THREADS = 10_000
_GIT_CEILING = "GIT_CEILING_DIRECTORIES"
"""Stops git's search for a repository at the workspaces' root: that may lie inside a repository which is not the agent's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRun:
    """Everything prepared for one run. It does not change during the run."""

    workspace: Workspace | None = None
    mcp: ResolvedMcpServers = field(default_factory=ResolvedMcpServers)
    system_prompt: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Grant:
    """The answer of the credentials source to a run: what it granted is on the Run, or the error is here."""

    error: RunnerError | None = None


_GRANT: RunAttribute[_Grant] = RunAttribute("grant")
_PREPARED: RunAttribute[PreparedRun] = RunAttribute("prepared run")
"""Carries the result on the Run, from set-up to the PlatformContext of the run's adapter. Set before the agent starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Announcement:
    """The message of a stage: `first_text` in a new thread, `changed_text` later. It is sent only when `subject` has changed."""

    subject: object
    first_text: str
    changed_text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self.subject)).hexdigest()[:16]


_Stage = Callable[["Run", PreparedRun], Awaitable[tuple[PreparedRun, _Announcement | None]]]
"""Takes what is prepared so far; returns it with the stage's own part, and the stage's message."""


class Setup:
    """The middleware. It leaves a PreparedRun on the Run; `prepared_run(run)` returns it during the run."""

    def __init__(
        self,
        *,
        agents: Mapping[str, DeclaredCapabilities],
        workspaces: Workspaces | None,
        mcp: McpConfig,
        credentials: Credentials | None,
        recent: RecentGrants,
        messages: Callable[[ThreadKey], Awaitable[list[Message]]],
        uploads: Callable[[ThreadKey], Awaitable[tuple[str, ...]]],
        system_prompt: str = "",
    ) -> None:
        """`messages` returns a thread's messages, `uploads` the names of its uploaded files."""
        self._agents = agents
        self._workspaces = workspaces
        self._mcp = mcp
        self._credentials = credentials
        self._recent = recent
        self._messages = messages
        self._uploads = uploads
        self._operator_prompt = system_prompt
        self._announced: OrderedDict[ThreadKey, dict[str, str]] = OrderedDict()

    def prepared_run(self, run: Run) -> PreparedRun:
        """Return what is prepared for this run; only the operator's prompt when set-up did not prepare one."""
        return _PREPARED.get(run) or PreparedRun(system_prompt=build_system_prompt(None, extra=self._operator_prompt))

    async def grant_credentials(self, run: Run) -> None:
        """Fetch the credentials of a run. If that fails, the run's set-up reports it: a client hears of it in the stream."""
        if not self._needs_credentials(run.agent):
            return
        try:
            run.environment.update(await fetch_credentials(self._credentials, run, run.secrets, self._recent))
        except RunnerError as error:
            _GRANT.set(run, _Grant(error=error))
        else:
            _GRANT.set(run, _Grant())

    def evict_thread(self, thread: ThreadKey) -> None:
        self._announced.pop(thread, None)

    def __call__(self, handler: RunHandler) -> RunHandler:
        def handle(run: Run) -> AsyncGenerator[Event, None]:
            # An agent without stages keeps its own generator: no extra step per event.
            return self._with_setup(handler, run) if self._stages_for(run.agent) else handler(run)

        return handle

    async def _with_setup(self, handler: RunHandler, run: Run) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(handler(run)) as events, aclosing(self._run_stages(run)) as preparing:
                async for event in events:
                    yield event
                    if isinstance(event, RunStarted):
                        break
                async for event in preparing:
                    yield event
                    if isinstance(event, RunError):
                        return
                async for event in events:
                    yield event
        finally:
            _PREPARED.clear(run)
            _GRANT.clear(run)
            run.environment.clear()

    async def _run_stages(self, run: Run) -> AsyncGenerator[Event, None]:
        """Run the stages and yield their messages; after a failure a RUN_ERROR and nothing more."""
        prepared = PreparedRun()
        for name, stage in self._stages_for(run.agent):
            try:
                prepared, announcement = await stage(run, prepared)
            except LedgerError:
                raise
            except RunnerError as error:
                logger.warning(
                    "The set-up stage `%s` of %s failed; the run ends with an error",
                    name,
                    describe_run(run),
                    exc_info=error,
                )
                yield setup_error(name, error.message).event
                yield RunError(message=error.message, code=error.code)
                return
            for event in await self._announce_once(run, name, announcement) if announcement else ():
                yield event
        for event in _earlier_facts(run, prepared):
            yield event
        _PREPARED.set(run, prepared)

    def _stages_for(self, agent: str) -> list[tuple[str, _Stage]]:
        """Return the stages for this agent, in order: each may use what earlier stages prepared."""
        capabilities = self._agents[agent]
        stages: list[tuple[str, _Stage]] = []
        if self._needs_credentials(agent):
            stages.append(("credentials", self._add_credentials))
        if capabilities.file_system:
            stages.append(("workspace", self._prepare_workspace))
        if capabilities.mcp:
            stages.append(("mcp", self._resolve_mcp))
        return [*stages, ("prompt", self._write_prompt)] if stages else []

    def _needs_credentials(self, agent: str) -> bool:
        return self._agents[agent].file_system or self._agents[agent].mcp

    async def _add_credentials(self, run: Run, prepared: PreparedRun) -> tuple[PreparedRun, _Announcement | None]:
        # A run that was asked to stop before it had them waits here, where stopping ends it.
        if _GRANT.get(run) is None:
            await self.grant_credentials(run)
        grant = _GRANT.get(run)
        if grant and grant.error:
            raise grant.error
        if not run.environment:
            return prepared, None
        announcement = _Announcement(
            subject=sorted(run.environment),
            first_text="Auth connected",
            changed_text="Auth connected: other credentials",
        )
        return prepared, announcement

    async def _prepare_workspace(self, run: Run, prepared: PreparedRun) -> tuple[PreparedRun, _Announcement]:
        assert self._workspaces is not None
        workspace = await self._workspaces.prepare(run.thread)
        run.environment[_GIT_CEILING] = str(workspace.path.parent)
        workflow = workspace.workflow
        subject = [
            [[repo.name, repo.url] for repo in workspace.repos],
            [workflow.url, workflow.branch, workflow.path] if workflow else None,
        ]
        repos = ", ".join(repo.name for repo in workspace.repos) or "none"
        changed_text = (
            f"Workspace changed. Repositories: {repos}. Workflow: {_workflow_title(workspace) if workflow else 'none'}."
        )
        announcement = _Announcement(subject=subject, first_text="Workspace validated", changed_text=changed_text)
        return replace(prepared, workspace=workspace), announcement

    async def _resolve_mcp(self, run: Run, prepared: PreparedRun) -> tuple[PreparedRun, _Announcement]:
        directory = prepared.workspace.cwd_path if prepared.workspace else None
        resolved = await self._mcp.resolve_for_thread(run.thread, directory, run.environment)
        subject = [
            [[server.name, server.digest] for server in resolved.servers],
            resolved.disabled,
            [[problem.name, problem.message] for problem in resolved.problems],
        ]
        names = ", ".join(server.name for server in resolved.servers) or "none"
        problems = "".join(f" {problem.message}" for problem in resolved.problems)
        announcement = _Announcement(
            subject=subject,
            first_text=f"MCP servers initialised: {names}.{problems}",
            changed_text=f"MCP servers changed: {names}.{problems}",
        )
        return replace(prepared, mcp=resolved), announcement

    async def _write_prompt(self, run: Run, prepared: PreparedRun) -> tuple[PreparedRun, None]:
        workspace = prepared.workspace
        uploads = await self._uploads(run.thread) if workspace else ()
        return replace(prepared, system_prompt=build_system_prompt(workspace, uploads, self._operator_prompt)), None

    async def _announce_once(self, run: Run, stage: str, announcement: _Announcement) -> list[Event]:
        """Return the stage's message as a developer message; nothing if the thread already has it."""
        digests = self._announced.setdefault(run.thread, {})
        self._announced.move_to_end(run.thread)
        while len(self._announced) > _MAX_THREADS:
            self._announced.popitem(last=False)
        previous = digests.get(stage)
        digests[stage] = announcement.digest
        if previous == announcement.digest:
            return []
        stored = await self._last_stored_digest(run, stage)
        if stored == announcement.digest:
            return []
        text = announcement.changed_text if previous or stored else announcement.first_text
        return _developer_message(f"{_MESSAGE_ID_PREFIX}-{stage}-{announcement.digest}-{run.key[:8]}", text)

    async def _last_stored_digest(self, run: Run, stage: str) -> str | None:
        """Return the digest of the stage's last message in this thread, from any process: it is part of the message's id.

        An agent can choose that id too, but not the role.
        """
        if not run.is_continuation:
            return None
        prefix = f"{_MESSAGE_ID_PREFIX}-{stage}-"
        sent = [message for message in await self._messages(run.thread) if isinstance(message, DeveloperMessage)]
        message_ids = [message.id for message in sent if message.id.startswith(prefix)]
        return message_ids[-1].removeprefix(prefix)[:16] if message_ids else None


def _developer_message(message_id: str, text: str) -> list[Event]:
    return [
        TextMessageStart(message_id=message_id, role="developer"),
        TextMessageContent(message_id=message_id, delta=text),
        TextMessageEnd(message_id=message_id),
    ]


def _earlier_facts(run: Run, prepared: PreparedRun) -> list[Event]:
    """Return facts about what was added before the thread's first run, when there was no stream to report them."""
    workspace = prepared.workspace
    if run.is_continuation or workspace is None:
        return []
    facts = [repo_added(repo.name, repo.url, repo.branch) for repo in workspace.repos]
    if workflow := workspace.workflow:
        facts.append(workflow_changed(workflow.url, workflow.branch, workflow.path, workflow.config))
    return [fact.event for fact in facts]


def _workflow_title(workspace: Workspace) -> str:
    workflow = workspace.workflow
    return (workflow.config.name or workflow.directory.name) if workflow else ""
