"""Official clients that are cut inside a tool call and resume there have the call once.

Those between 0.0.48 and 0.0.57 append a message for each TOOL_CALL_START that names none, also if they know the call.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.server import serving
from tests.e2e.sse import open_stream
from tests.e2e.talk import history, new_id, run, run_input
from tests.e2e.test_clients import CLIENTS, installed
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.sse import Frame

AGENT = """
async def agent(input):
    yield {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look"}
    for part in ('{"at"', ': "the ', 'sky"}'):
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": part}
    yield {"type": "TOOL_CALL_END", "toolCallId": "c"}
    yield {"type": "TOOL_CALL_RESULT", "messageId": "result", "toolCallId": "c", "content": "blue"}
"""


@pytest.mark.parametrize("version", ["1.0", "0.0.59", "0.0.57", "0.0.55", "0.0.42"])
async def test_a_call_without_a_message_is_there_once_after_a_cut(tmp_path: Path, version: str) -> None:
    installed(f"ag-ui-client-{version}")
    (tmp_path / "calling.py").write_text(AGENT)
    thread = new_id("thread")
    with serving(tmp_path / "ambient.db", "mine=calling:agent") as server, unless_hung():
        await run(server.url, run_input(thread, "hi"))
        url = f"{server.url}/threads/{thread}/events?until=idle&protocol={version}"
        whole = await read_frames(url)
        cut = 1 + next(at for at, frame in enumerate(whole) if frame.event["type"] == "TOOL_CALL_ARGS")
        rest = await read_frames(url, whole[cut - 1].id)
        stored = await history(server.url, thread)
    (snapshot,) = [frame.event for frame in stored if frame.event["type"] == "MESSAGES_SNAPSHOT"]
    runs = [{"add": [], "events": [frame.event for frame in frames]} for frames in (whole[:cut], rest)]
    folded = fold(version, runs)
    assert [message["id"] for message in folded["messages"]] == [message["id"] for message in snapshot["messages"]]


async def read_frames(url: str, cursor: str = "") -> list[Frame]:
    async with open_stream(url, headers={"Last-Event-ID": cursor} if cursor else {}) as stream:
        return await stream.rest()


def fold(version: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the client has after the last run."""
    done = subprocess.run(
        ["node", "reduce.mjs", version],
        cwd=CLIENTS,
        input=json.dumps({"runs": runs}),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return json.loads(done.stdout)[version][-1]
