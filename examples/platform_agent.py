"""An agent that works on files: it says what is new in the repository it was given, with what was granted to the person who asks.

Run it from this directory with `uvicorn platform_agent:app`. Then give a thread a repository, and ask:

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


class Reader:
    """Runs git where the platform says. The child gets what was granted to this run, and nothing of the server's own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:  # noqa: A002  the contract's name
        environment = base_environment() | current_run().environment
        done = await anyio.run_process(
            ["git", "log", "-3", "--format=%an: %s"],
            cwd=self.folder,
            env=environment,
            check=False,
            stderr=subprocess.STDOUT,
        )
        answer_id = str(uuid4())
        yield TextMessageStartEvent(message_id=answer_id)
        yield TextMessageContentEvent(message_id=answer_id, delta=done.stdout.decode() or "Nothing yet.")
        yield TextMessageEndEvent(message_id=answer_id)


class ReaderBridge(PlatformBridge):
    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True)

    def create_adapter(self, ctx: PlatformContext) -> Reader:
        return Reader(ctx.cwd_path)


async def credentials(asker: CredentialSubject) -> Mapping[str, str]:
    """What child processes of this person's runs may have: here a name to commit with. A real one would ask a vault for tokens."""
    return {"GIT_AUTHOR_NAME": asker.actor.owner, "GIT_COMMITTER_NAME": asker.actor.owner}


app = FastAPI()
add_ambient_endpoints(app, bridge=ReaderBridge(), credentials=credentials)
