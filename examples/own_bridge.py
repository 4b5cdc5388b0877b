"""Your own agent in a few lines: an adapter that yields AG-UI events, a bridge that makes it, and an app that serves it.

Run it from this directory with `uvicorn own_bridge:app`, or without an app: `ambient serve parrot=own_bridge:ParrotBridge`.
"""

from collections.abc import AsyncIterator
from uuid import uuid4

from ag_ui.core import RunAgentInput, TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from fastapi import FastAPI

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, add_ambient_endpoints

Event = TextMessageStartEvent | TextMessageContentEvent | TextMessageEndEvent


class Parrot:
    """Repeats the newest message, word by word. It sends only the answer: the runner frames the run."""

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:  # noqa: A002  the contract's name
        said = next((message.content for message in reversed(input.messages) if message.role == "user"), "")
        answer_id = str(uuid4())
        yield TextMessageStartEvent(message_id=answer_id)
        for word in str(said).split():
            yield TextMessageContentEvent(message_id=answer_id, delta=f"{word} ")
        yield TextMessageEndEvent(message_id=answer_id)


class ParrotBridge(PlatformBridge):
    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(tool_use=False)

    def create_adapter(self, ctx: PlatformContext) -> Parrot:
        return Parrot()


app = FastAPI()
add_ambient_endpoints(app, bridge=ParrotBridge())
