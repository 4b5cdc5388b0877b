"""Set-up: what is made ready for a run after its RUN_STARTED and before its agent begins, and said to clients as it happens.

It is a middleware. What was made ready is kept for the run alone, and forgotten with it: a change of the workspace or of the MCP servers
is for the next run. An agent that neither has files nor uses MCP servers passes through untouched.
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
    RunError,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from ambient_runner.services.credentials import grant
from ambient_runner.services.mcp.config import Resolved
from ambient_runner.services.platform_facts import repo_added, setup_error, workflow_changed
from ambient_runner.services.system_prompt import system_prompt

if TYPE_CHECKING:
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.protocol.capabilities import Framework
    from ambient_runner.protocol.events import Event, Message
    from ambient_runner.runs.run import Run, RunHandler
    from ambient_runner.services.credentials import Credentials
    from ambient_runner.services.mcp.config import McpConfig
    from ambient_runner.services.workspaces.workspaces import Workspace, Workspaces

__all__ = ["Prepared", "Setup"]

logger = logging.getLogger(__name__)

_ID = "setup"
_REMEMBERED = 10_000
_NO_HIGHER = "GIT_CEILING_DIRECTORIES"
"""Where git stops looking for a repository: the workspaces may be inside one, and that is not the agent's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What one run stands on. It does not change while the run goes on."""

    workspace: Workspace | None = None
    mcp: Resolved = field(default_factory=Resolved)
    system_prompt: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """What a stage has to say: `first` in a thread, `changed` later. The same `about` is not said twice."""

    about: object
    first: str
    changed: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self.about)).hexdigest()[:16]


_Stage = Callable[["Run", Prepared], Awaitable[tuple[Prepared, _Said | None]]]
"""Takes what the stages before it have made ready; gives that with its own part, and what it has to say."""


class Setup:
    """The middleware. `of(run)` gives what was made ready while the run goes on."""

    def __init__(
        self,
        *,
        agents: Mapping[str, Framework],
        workspaces: Workspaces | None,
        mcp: McpConfig,
        credentials: Credentials | None,
        messages: Callable[[ThreadKey], Awaitable[list[Message]]],
        uploads: Callable[[ThreadKey], Awaitable[tuple[str, ...]]],
        system_prompt: str = "",
    ) -> None:
        """`messages` gives a thread's messages, `uploads` the names of its files."""
        self._agents = agents
        self._workspaces = workspaces
        self._mcp = mcp
        self._credentials = credentials
        self._messages = messages
        self._uploads = uploads
        self._extra = system_prompt
        self._prepared: dict[str, Prepared] = {}
        self._said: OrderedDict[ThreadKey, dict[str, str]] = OrderedDict()

    def of(self, run: Run) -> Prepared:
        """What this run stands on."""
        return self._prepared.get(run.key) or Prepared(system_prompt=system_prompt(None, extra=self._extra))

    def forget(self, thread: ThreadKey) -> None:
        self._said.pop(thread, None)

    def __call__(self, handler: RunHandler) -> RunHandler:
        def handle(run: Run) -> AsyncGenerator[Event, None]:
            # An agent that needs nothing of this has its own events, without a step between.
            return self._with_setup(handler, run) if self._stages(run.agent) else handler(run)

        return handle

    async def _with_setup(self, handler: RunHandler, run: Run) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(handler(run)) as events, aclosing(self._prepare(run)) as preparing:
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
            self._prepared.pop(run.key, None)
            run.environment.clear()

    async def _prepare(self, run: Run) -> AsyncGenerator[Event, None]:
        """Each stage's words; after a failure a RUN_ERROR and nothing more."""
        prepared = Prepared()
        for name, stage in self._stages(run.agent):
            try:
                prepared, said = await stage(run, prepared)
            except LedgerError:
                raise
            except RunnerError as error:
                logger.warning("The set-up of a run failed: %s", name, exc_info=error)
                yield setup_error(name, error.message).event
                yield RunError(message=error.message, code=error.code)
                return
            for event in await self._news(run, name, said) if said else ():
                yield event
        for event in _first_facts(run, prepared):
            yield event
        self._prepared[run.key] = prepared

    def _stages(self, agent: str) -> list[tuple[str, _Stage]]:
        """What has to be made ready for this agent, in order: each may need what the ones before it have brought."""
        can = self._agents[agent]
        stages: list[tuple[str, _Stage]] = []
        if can.file_system or can.mcp:
            stages.append(("credentials", self._grant))
        if can.file_system:
            stages.append(("workspace", self._validate))
        if can.mcp:
            stages.append(("mcp", self._resolve))
        return [*stages, ("prompt", self._write_prompt)] if stages else []

    async def _grant(self, run: Run, prepared: Prepared) -> tuple[Prepared, _Said | None]:
        run.environment.update(await grant(self._credentials, run, run.secrets))
        if not run.environment:
            return prepared, None
        said = _Said(about=sorted(run.environment), first="Auth connected", changed="Auth connected: other credentials")
        return prepared, said

    async def _validate(self, run: Run, prepared: Prepared) -> tuple[Prepared, _Said]:
        assert self._workspaces is not None
        space = await self._workspaces.prepare(run.thread)
        run.environment[_NO_HIGHER] = str(space.path.parent)
        flow = space.workflow
        about = [
            [[repo.name, repo.url] for repo in space.repos],
            [flow.url, flow.branch, flow.path] if flow else None,
        ]
        repos = ", ".join(repo.name for repo in space.repos) or "none"
        changed = f"Workspace changed. Repositories: {repos}. Workflow: {_title(space) if flow else 'none'}."
        said = _Said(about=about, first="Workspace validated", changed=changed)
        return replace(prepared, workspace=space), said

    async def _resolve(self, run: Run, prepared: Prepared) -> tuple[Prepared, _Said]:
        folder = prepared.workspace.cwd_path if prepared.workspace else None
        found = await self._mcp.of(run.thread, folder, run.environment)
        about = [
            [[server.name, server.digest] for server in found.servers],
            found.disabled,
            [[mistake.name, mistake.message] for mistake in found.mistakes],
        ]
        names = ", ".join(server.name for server in found.servers) or "none"
        faults = "".join(f" {mistake.message}" for mistake in found.mistakes)
        said = _Said(
            about=about,
            first=f"MCP servers initialised: {names}.{faults}",
            changed=f"MCP servers changed: {names}.{faults}",
        )
        return replace(prepared, mcp=found), said

    async def _write_prompt(self, run: Run, prepared: Prepared) -> tuple[Prepared, None]:
        space = prepared.workspace
        uploads = await self._uploads(run.thread) if space else ()
        return replace(prepared, system_prompt=system_prompt(space, uploads, self._extra)), None

    async def _news(self, run: Run, stage: str, said: _Said) -> list[Event]:
        """The stage's words as a developer message, unless this thread has had them."""
        known = self._said.setdefault(run.thread, {})
        self._said.move_to_end(run.thread)
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        before = known.get(stage)
        known[stage] = said.digest
        if before == said.digest:
            return []
        stored = await self._last_stored(run, stage)
        if stored == said.digest:
            return []
        text = said.changed if before or stored else said.first
        return _developer_message(f"{_ID}-{stage}-{said.digest}-{run.key[:8]}", text)

    async def _last_stored(self, run: Run, stage: str) -> str | None:
        """The digest this thread was last told of, by any process: it is in the message's id."""
        if not run.is_continuation:
            return None
        prefix = f"{_ID}-{stage}-"
        told = [message.id for message in await self._messages(run.thread) if message.id.startswith(prefix)]
        return told[-1].removeprefix(prefix)[:16] if told else None


def _developer_message(name: str, text: str) -> list[Event]:
    return [
        TextMessageStart(message_id=name, role="developer"),
        TextMessageContent(message_id=name, delta=text),
        TextMessageEnd(message_id=name),
    ]


def _first_facts(run: Run, prepared: Prepared) -> list[Event]:
    """What was added before the thread existed: nobody could be told then."""
    space = prepared.workspace
    if run.is_continuation or space is None:
        return []
    facts = [repo_added(repo.name, repo.url, repo.branch) for repo in space.repos]
    if flow := space.workflow:
        facts.append(workflow_changed(flow.url, flow.branch, flow.path, flow.config))
    return [fact.event for fact in facts]


def _title(space: Workspace) -> str:
    flow = space.workflow
    return (flow.config.name or flow.folder.name) if flow else ""
