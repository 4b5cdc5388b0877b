"""Secrets that modules add to the environment when they are imported, as `load_dotenv()` does at the top of most agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.server import serving
from tests.e2e.talk import ending, events_of, history, new_id, run, run_input
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "Zq7vR2mK9xLpT4wYbN8cHd3J"
IMPORTS = f"import logging, os\nos.environ['LATE_API_TOKEN'] = '{SECRET}'\n"
AGENT = """
import logging, os

async def agent(input):
    secret = os.environ["LATE_API_TOKEN"]
    logging.getLogger("mine").warning("the token is %s", secret)
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}
    for character in f"it is {secret} indeed":
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": character}
    yield {"type": "TEXT_MESSAGE_END", "messageId": "m"}
    yield {"type": "STATE_SNAPSHOT", "snapshot": {"token": secret}}
"""
MIDDLEWARE = """
def middleware(handler):
    return handler
"""


@pytest.mark.parametrize("importing", ["agent", "middleware"])
async def test_a_secret_that_a_module_adds_to_the_environment_is_redacted(tmp_path: Path, importing: str) -> None:
    """`ambient serve` searched for the secrets of the environment as it was before the modules were imported."""
    modules = {"agent": AGENT, "middleware": MIDDLEWARE}
    for name, source in modules.items():
        (tmp_path / f"late_{name}.py").write_text((IMPORTS if name == importing else "") + source)
    env = {"AMBIENT_MIDDLEWARE": "late_middleware:middleware"}
    thread = new_id("thread")
    with serving(tmp_path / "ambient.db", "mine=late_agent:agent", env=env) as server, unless_hung():
        frames = await run(server.url, run_input(thread, "hi"))
        stored = await history(server.url, thread)
    assert ending(events_of(frames)) == "success"
    seen = {"streamed": frames, "stored": stored}
    assert {name: any(SECRET.encode() in frame.raw for frame in each) for name, each in seen.items()} == {
        "streamed": False,
        "stored": False,
    }
    assert (SECRET in server.output, "the token is [redacted]" in server.output) == (False, True)
