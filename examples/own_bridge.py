"""Your own agent: an adapter that yields AG-UI events, a bridge that creates it, and an app that serves it.

Run it from this directory with `uvicorn own_bridge:app`, or without an app: `ambient serve parrot=own_bridge:ParrotBridge`.
"""

from collections.abc import AsyncIterator
from uuid import uuid4

from ag_ui.core import RunAgentInput, TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from fastapi import FastAPI

from ambient_runner import FrameworkCapabilities, PlatformBridge, PlatformContext, add_ambient_endpoints

Event = TextMessageStartEvent | TextMessageContentEvent | TextMessageEndEvent


class Parrot:
    """Streams the last user message back, word by word. The server adds RUN_STARTED and RUN_FINISHED."""

    async def run(self, input: RunAgentInput) -> AsyncIterator[Event]:  # noqa: A002  the adapter contract's name
        prompt = next((message.content for message in reversed(input.messages) if message.role == "user"), "")
        message_id = str(uuid4())
        yield TextMessageStartEvent(message_id=message_id)
        for word in str(prompt).split():
            yield TextMessageContentEvent(message_id=message_id, delta=f"{word} ")
        yield TextMessageEndEvent(message_id=message_id)


class ParrotBridge(PlatformBridge):
    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(tool_use=False)

    def create_adapter(self, ctx: PlatformContext) -> Parrot:
        return Parrot()


app = FastAPI()
add_ambient_endpoints(app, bridge=ParrotBridge())
