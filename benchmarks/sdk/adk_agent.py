"""An ADK agent whose model counts: `count 2000` is two thousand partial events and the complete one; `count 20 after 5 calls` calls a
tool first."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from benchmarks.workload import parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def look_up(city: str) -> dict[str, str]:
    """Return what is known about a city."""
    return {"answer": f"{city} has a harbour."}


class CountingLlm(BaseLlm):
    """Streams the workload of the last prompt, after its tool calls."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        whole: list[str] = []
        contents = llm_request.contents
        prompts = [index for index, content in enumerate(contents) if _prompt_text(content)]
        work = parse_workload(_prompt_text(contents[prompts[-1]]))
        if (len(contents) - 1 - prompts[-1]) // 2 < work.calls:
            call = types.FunctionCall(id=str(uuid.uuid4()), name="look_up", args={"city": "Lisbon"})
            yield LlmResponse(
                content=types.Content(role="model", parts=[types.Part(function_call=call)]), partial=False
            )
            return
        async for text in stream_deltas(work):
            whole.append(text)
            yield _build_response(text, partial=True)
        yield _build_response("".join(whole), partial=False)


def _prompt_text(content: Any) -> str:
    """Return the text of a user content; empty for others, which have tool results or are the model's own."""
    return "".join(part.text or "" for part in content.parts) if content.role == "user" else ""


def _build_response(text: str, *, partial: bool) -> LlmResponse:
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, partial=partial)


def build_agent() -> LlmAgent:
    return LlmAgent(name="bench", model=CountingLlm(model="counting"), tools=[look_up])


_sessions = InMemorySessionService()
_runner = Runner(agent=build_agent(), app_name="bench", session_service=_sessions)


async def run_loop(prompt: str) -> int:
    """Consume the SDK's own stream. Return the number of deltas."""
    session = await _sessions.create_session(app_name="bench", user_id="one", session_id=str(uuid.uuid4()))
    message = types.Content(role="user", parts=[types.Part(text=prompt)])
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    count = 0
    async for event in _runner.run_async(user_id="one", session_id=session.id, new_message=message, run_config=config):
        count += bool(event.partial)
    return count


def build_published_app() -> Any:
    """Return the app of the published adapter."""
    from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint  # pyright: ignore  # another environment
    from fastapi import FastAPI

    app = FastAPI()
    add_adk_fastapi_endpoint(app, ADKAgent(adk_agent=build_agent(), app_name="bench", user_id="one"), path="/")
    return app
