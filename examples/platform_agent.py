"""An agent that works on files: it lists the latest commits of the thread's repository, with the credentials of the user.

Run it from this directory with `uvicorn platform_agent:app`. Then add a repository to a thread and send a message:

    curl localhost:8000/repos/add -H 'Content-Type: application/json' \
        -d '{"threadId": "t1", "url": "https://github.com/ag-ui-protocol/ag-ui"}'
    curl -N localhost:8000/ -H 'Content-Type: application/json' \
        -d '{"threadId": "t1", "messages": [{"role": "user", "content": "What is new?"}]}'
"""

import subprocess
from collections.abc import AsyncIterator, Mapping
from uuid import uuid4

import anyio
from ag_ui.core import RunAgentInput, TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from fastapi import FastAPI

from ambient_runner import (
    CredentialSubject,
    FrameworkCapabilities,
    PlatformBridge,
    PlatformContext,
    add_ambient_endpoints,
    base_environment,
    current_run,
)

Event = TextMessageStartEvent | TextMessageContentEvent | TextMessageEndEvent


class GitLogAdapter:
    """Runs `git log` in the working directory. The child process gets only the environment granted to this run."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:  # noqa: A002  the adapter contract's name
        environment = base_environment() | current_run().environment
        result = await anyio.run_process(
            ["git", "log", "-3", "--format=%an: %s"],
            cwd=self._directory,
            env=environment,
            check=False,
            stderr=subprocess.STDOUT,
        )
        message_id = str(uuid4())
        yield TextMessageStartEvent(message_id=message_id)
        yield TextMessageContentEvent(message_id=message_id, delta=result.stdout.decode() or "No commits yet.")
        yield TextMessageEndEvent(message_id=message_id)


class GitLogBridge(PlatformBridge):
    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True)

    def create_adapter(self, ctx: PlatformContext) -> GitLogAdapter:
        return GitLogAdapter(ctx.cwd_path)


async def fetch_credentials(subject: CredentialSubject) -> Mapping[str, str]:
    """Return environment variables for the child processes of this user's runs. In production, fetch tokens from a vault here."""
    return {"GIT_AUTHOR_NAME": subject.actor.owner, "GIT_COMMITTER_NAME": subject.actor.owner}


app = FastAPI()
add_ambient_endpoints(app, bridge=GitLogBridge(), credentials=fetch_credentials)
