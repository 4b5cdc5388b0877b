"""Messages that wait for a run: their order, their bounds, and the pauses of the output."""

from __future__ import annotations

import anyio
import pytest

from ambient_runner.bridges.acp import buffered_messages
from ambient_runner.bridges.acp.buffered_messages import MessageBuffer, TextChunks, Update
from tests.machine_speed import unless_hung


class Output:
    """Output of a process, in numbers."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.is_paused = False

    def pause_output(self) -> None:
        self.is_paused = True

    def resume_output(self) -> None:
        self.is_paused = False


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    monkeypatch.setattr(buffered_messages, "_MAX_MESSAGES", 4)
    monkeypatch.setattr(buffered_messages, "_MAX_BYTES", 100)
    return Output()


def test_messages_come_out_in_order(output: Output) -> None:
    buffer = MessageBuffer(output)
    for number in range(3):
        buffer.put(number + 1)
    assert (list(buffer.take_all()), buffer.take()) == ([1, 2, 3], None)


def test_late_text_is_dropped_and_everything_else_stays_in_order(output: Output) -> None:
    buffer, late, call = MessageBuffer(output), Update({"text": "late"}, is_late=True), Update({"call": 1})
    buffer.put_chunk("text", "m1", "in time")
    buffer.put_chunk("text", "m1", "late", is_late=True)
    for message in (late, call):
        buffer.put_update(message)
    assert output.is_paused
    buffer.drop_late()
    assert not output.is_paused
    assert list(buffer.take_all()) == [TextChunks("text", "m1", ["in time"], 7), call]


def test_the_output_is_paused_while_there_are_too_many(output: Output) -> None:
    buffer = MessageBuffer(output)
    for number in range(4):
        buffer.put(number)
    assert output.is_paused
    buffer.take()
    buffer.take()
    assert output.is_paused
    buffer.take()
    assert not output.is_paused


def test_the_output_is_paused_while_there_are_too_many_bytes(output: Output) -> None:
    buffer = MessageBuffer(output)
    for number in range(2):
        output.received_bytes += 60
        buffer.put(number)
    assert output.is_paused
    buffer.take()
    assert output.is_paused
    buffer.take()
    assert not output.is_paused
    output.received_bytes += 60
    buffer.put(3)
    assert not output.is_paused


def test_updates_of_a_turn_that_is_cancelled_are_dropped_instead_of_pausing(output: Output) -> None:
    buffer = MessageBuffer(output)
    for number in range(4):
        buffer.put_update(number)
    buffer.discard_excess(is_discarding=True)
    assert not output.is_paused
    buffer.put_update("too much")
    buffer.put("the end")
    assert not output.is_paused
    assert list(buffer.take_all()) == [0, 1, 2, 3, "the end"]
    buffer.discard_excess(is_discarding=False)
    buffer.put_update("again")
    assert buffer.take() == "again"


async def test_a_message_wakes_the_one_that_waits(output: Output) -> None:
    buffer = MessageBuffer(output)
    received: list[object] = []

    async def receive() -> None:
        received.append(await buffer.get(60))

    with unless_hung():
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            buffer.put("message")
            buffer.put("later")
    assert received == ["message"]
    assert await buffer.get(0) == "later"
    assert await buffer.get(0.01) is None
