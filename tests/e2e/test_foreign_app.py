"""Our endpoints on another app: with its own lifespan, under a prefix, mounted where no lifespan runs, and the sample of the contract.

Each app is a file of a few lines, served by a real uvicorn in a directory of its own.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from textwrap import dedent
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import httpx

from tests.machine_speed import HANG_SECONDS, unless_hung

from .server import Child
from .sse import open_stream
from .talk import ending, events_of, history, new_id, one_run, run, run_input, split_runs, text_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

ENDED_BY_SIGTERM = {0, -signal.SIGTERM}
"""uvicorn ends well and then raises the signal again."""

MY_ADAPTER = '''
from ag_ui.core import (
    EventType, RunFinishedEvent, RunStartedEvent, TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent,
)
from fastapi import FastAPI


class MyAdapter:
    """An agent of ag_ui.core events that frames its own runs."""

    made = 0

    def __init__(self, model, prompt):
        MyAdapter.made += 1
        self.number, self.turns = MyAdapter.made, 0

    async def run(self, input):
        self.turns += 1
        yield RunStartedEvent(type=EventType.RUN_STARTED, thread_id=input.thread_id, run_id=input.run_id)
        message = f"{input.run_id}-answer"
        yield TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id=message, role="assistant")
        said = f"{input.messages[-1].content}: adapter {self.number}, turn {self.turns}, {len(input.messages)} messages"
        for word in said.split(" "):
            yield TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id=message, delta=f"{word} ")
        yield TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id=message)
        yield RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id=input.thread_id, run_id=input.run_id)

'''

CONTRACT_SAMPLE = """
from ambient_runner import add_ambient_endpoints, PlatformBridge, PlatformContext, FrameworkCapabilities

class MyBridge(PlatformBridge):
    def capabilities(self):
        return FrameworkCapabilities(file_system=False, mcp=False)

    def create_adapter(self, ctx):
        return MyAdapter(model=ctx.model, prompt=ctx.system_prompt_append)

app = FastAPI()
add_ambient_endpoints(app, bridge=MyBridge())
"""

FOREIGN = """
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge


@asynccontextmanager
async def lifespan(app):
    app.state.words = ["started"]
    print("foreign lifespan began", flush=True)
    yield {"mine": "still here"}
    print("foreign lifespan ended", flush=True)


app = FastAPI(lifespan=lifespan)


@app.get("/")
def home():
    return {"home": app.state.words}


@app.get("/health")
def health():
    return {"health": "of the foreign app"}


add_ambient_endpoints(app, DemoBridge(), prefix="/agent")
"""

MOUNTED = """
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge

inner = FastAPI()
add_ambient_endpoints(inner, DemoBridge())
app = Starlette(routes=[Mount("/inside", inner)])
"""


@contextmanager
def uvicorn(directory: Path, source: str) -> Generator[Child]:
    """This source as `app.py`, served on a free port."""
    (directory / "app.py").write_text(dedent(source))
    with Child([sys.executable, "-m", "uvicorn", "app:app", "--port", "0"], cwd=directory) as child:
        yield child


async def test_the_sample_of_the_contract_runs_verbatim(tmp_path: Path) -> None:
    """One adapter per thread, made once; its own RUN_STARTED and RUN_FINISHED are not doubled."""
    thread = new_id("thread")
    with uvicorn(tmp_path, MY_ADAPTER + CONTRACT_SAMPLE) as server, unless_hung():
        turns = [one_run(events_of(await run(server.url, run_input(thread, word)))) for word in ("one", "two")]
        other = one_run(events_of(await run(server.url, run_input(new_id("thread"), "three"))))
        stored = split_runs(events_of(await history(server.url, thread)))
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
            capabilities = (await http.get("/capabilities")).json()
    assert [text_of(events) for events in (*turns, other)] == [
        "one: adapter 1, turn 1, 1 messages ",
        "two: adapter 1, turn 2, 3 messages ",
        "three: adapter 2, turn 1, 1 messages ",
    ]
    assert stored == turns
    assert [ending(events) for events in stored] == ["success"] * 2
    assert capabilities["framework"]["file_system"] is False


async def test_our_endpoints_work_in_an_app_with_its_own_lifespan(tmp_path: Path) -> None:
    thread = new_id("thread")
    with uvicorn(tmp_path, FOREIGN) as server, unless_hung():
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as http:
            mine = [(await http.get(path)).json() for path in ("/", "/health")]
            ours = [(await http.get(f"/agent{path}")).json() for path in ("/health", "/ready")]
            elsewhere = (await http.get("/ready")).status_code
            events = one_run(events_of(await run(f"{server.url}/agent", run_input(thread, "say hello"))))
            stored = events_of(await history(f"{server.url}/agent", thread))
        code = await anyio.to_thread.run_sync(server.stop)
    assert mine == [{"home": ["started"]}, {"health": "of the foreign app"}]
    assert ours == [{"status": "healthy"}, {"status": "ready"}]
    assert elsewhere == 404
    assert code in ENDED_BY_SIGTERM
    assert (text_of(events), stored) == ("hello", events)
    assert [line for line in server.lines if "lifespan" in line] == [
        "foreign lifespan began\n",
        "foreign lifespan ended\n",
    ]


async def test_a_foreign_app_that_ends_closes_its_runs(tmp_path: Path) -> None:
    """The stream of a run in flight gets its terminal event and a proper end."""
    with uvicorn(tmp_path, FOREIGN) as server, unless_hung():
        body = run_input(new_id("thread"), "count 100000 every 2ms")
        async with open_stream(f"{server.url}/agent/", "POST", body=body) as stream:
            frames = await stream.until("TEXT_MESSAGE_CONTENT")
            server.signal(signal.SIGTERM)
            frames += await stream.rest()
        code = await anyio.to_thread.run_sync(server.wait)
    one_run(events_of(frames))
    assert code in ENDED_BY_SIGTERM


async def test_a_mounted_app_without_a_lifespan_starts_with_its_first_request(tmp_path: Path) -> None:
    thread = new_id("thread")
    with uvicorn(tmp_path, MOUNTED) as server, unless_hung():
        url = f"{server.url}/inside"
        events = one_run(events_of(await run(url, run_input(thread, "count 5"))))
        assert events_of(await history(url, thread)) == events
        async with httpx.AsyncClient(base_url=url, timeout=HANG_SECONDS) as http:
            assert (await http.get("/ready")).json() == {"status": "ready"}
        code = await anyio.to_thread.run_sync(server.stop)
    assert ending(events) == "success"
    assert code in ENDED_BY_SIGTERM
    assert "Task was destroyed" not in server.output
    assert "Traceback" not in server.output


async def test_endpoints_without_authorization_answer_only_this_machine(tmp_path: Path) -> None:
    """No `authorize=`: a proxy in front, seen by its forwarding headers, is refused."""
    with uvicorn(tmp_path, FOREIGN) as server, unless_hung():
        async with httpx.AsyncClient(base_url=f"{server.url}/agent", timeout=HANG_SECONDS) as http:
            answers = {
                name: (await http.get("/thread/list", headers={name: value})).status_code
                for name, value in {
                    "X-Forwarded-For": "203.0.113.7",
                    "Forwarded": "for=203.0.113.7",
                    "X-Real-IP": "203.0.113.7",
                    "Host": "agent.example.com",
                    "X-Harmless": "1",
                }.items()
            }
    assert {name: 400 <= status < 500 for name, status in answers.items()} == {
        "X-Forwarded-For": True,
        "Forwarded": True,
        "X-Real-IP": True,
        "Host": True,
        "X-Harmless": False,
    }


SAFE_BY_DEFAULT = """
from ambient_runner import Actor, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from fastapi import FastAPI

app = FastAPI()
add_ambient_endpoints(app, DemoBridge(), authorize=lambda request: Actor())
"""


async def test_an_app_without_a_log_of_its_own_says_once_which_tools_become_summaries(tmp_path: Path) -> None:
    with uvicorn(tmp_path, SAFE_BY_DEFAULT) as server, unless_hung():
        async with httpx.AsyncClient() as client:
            (await client.get(f"{server.url}/ready")).raise_for_status()
    [line] = [line for line in server.lines if "summaries" in line]
    assert '`exposure = { get_weather = "all" }`' in line
