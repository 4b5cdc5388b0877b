"""The JSON-RPC peer: any id, any junk, in order, and nothing that is asked stays open."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.processes.json_rpc import CANCEL_METHOD, JsonRpcPeer, PeerClosed
from ambient_runner.processes.json_rpc_messages import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    JsonRpcError,
    Message,
    Notification,
    Request,
    Response,
)
from tests.machine_speed import unless_hung


class Wire:
    """A peer, the messages it has delivered and what it has sent."""

    def __init__(self, *methods: str, max_line_bytes: int = 1 << 20) -> None:
        self.messages: list[Message] = []
        self.sent: list[Any] = []
        self.peer = JsonRpcPeer(
            self._write, methods=methods, on_message=self.messages.append, max_line_bytes=max_line_bytes
        )

    def _write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        assert data.count(b"\n") == 1
        self.sent.append(json.loads(data))

    def feed(self, *messages: Any) -> None:
        self.peer.feed(lines(*messages))

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.peer.junk_lines, self.peer.oversized_lines, self.peer.unmatched_responses


def lines(*messages: Any) -> bytes:
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in messages)


def update(text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"text": text}}


IDS = [0, 1, -5, "text", "", str(uuid.UUID(int=7)), None, 1.5, 2**53, 2**70]


@pytest.mark.parametrize("request_id", IDS, ids=repr)
def test_a_request_is_delivered_and_answered_with_its_own_id(request_id: Any) -> None:
    wire = Wire("ask")
    wire.feed({"jsonrpc": "2.0", "id": request_id, "method": "ask", "params": {"a": [1]}})
    assert wire.messages == [Request(request_id, "ask", {"a": [1]})]
    wire.peer.respond(request_id, {"b": 2})
    wire.peer.respond_error(request_id, -32000, "no")
    assert wire.sent == [
        {"jsonrpc": "2.0", "id": request_id, "result": {"b": 2}},
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32000, "message": "no"}},
    ]


@pytest.mark.parametrize("request_id", IDS, ids=repr)
def test_a_request_of_an_unknown_method_is_answered_and_not_delivered(request_id: Any) -> None:
    wire = Wire("ask")
    wire.feed({"jsonrpc": "2.0", "id": request_id, "method": "craft/drain"}, update("on"))
    (answer,) = wire.sent
    assert (answer["id"], answer["error"]["code"]) == (request_id, METHOD_NOT_FOUND)
    assert wire.messages == [Notification("session/update", {"text": "on"})]
    assert wire.counts == (0, 0, 0)


@pytest.mark.parametrize("request_id", [True, [1], {"a": 1}], ids=repr)
def test_a_request_with_an_id_that_is_none_is_refused(request_id: Any) -> None:
    wire = Wire("ask")
    wire.feed({"jsonrpc": "2.0", "id": request_id, "method": "ask"})
    assert [(one["id"], one["error"]["code"]) for one in wire.sent] == [(None, INVALID_REQUEST)]
    assert (wire.messages, wire.counts) == ([], (1, 0, 0))


def test_a_notification_of_any_method_is_delivered_with_or_without_params() -> None:
    wire = Wire()
    wire.feed({"method": "_x/y"}, {"jsonrpc": "2.0", "method": CANCEL_METHOD, "params": {"requestId": 0}})
    wire.feed({"jsonrpc": "2.0", "method": "list", "params": [1, 2], "extra": "kept out"})
    assert wire.messages == [
        Notification("_x/y", None),
        Notification(CANCEL_METHOD, {"requestId": 0}),
        Notification("list", [1, 2]),
    ]
    assert wire.sent == []


JUNK = {
    "text": b"Loading model...",
    "number": b"17",
    "string": b'"hello"',
    "null": b"null",
    "empty object": b"{}",
    "cut off": b'{"jsonrpc":"2.0","method":"session/upd',
    "two objects": b'{"method":"a"} {"method":"b"}',
    "NUL": b'\0{"method":"a"}',
    "NUL in a string": b'{"method":"a\0"}',
    "not UTF-8": b'{"method":"a","params":"\xff\xfe"}',
    "NaN": b'{"method":"a","params":NaN}',
    "deep": b'{"method":"a","params":' + b"[" * 500 + b"]" * 500 + b"}",
    "very deep": b'{"method":"a","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep and a lone surrogate": b'{"method":"a","params":["\\ud800",' + b"[" * 99_000 + b"]" * 99_000 + b"]}",
    "a lone surrogate and no end": b'{"method":"a","params":"\\ud800',
    "method is no text": b'{"method":7,"params":{}}',
    "method is no text, with an id": b'{"id":1,"method":null,"params":{}}',
    "byte order mark": b'\xef\xbb\xbf{"method":"a"}',
    "long number": b'{"method":"a","params":\\ud' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_is_counted_and_harms_nothing(junk: bytes) -> None:
    wire = Wire()
    wire.feed(update("before"), junk, update("after"))
    assert [message.params["text"] for message in wire.messages if isinstance(message, Notification)] == [
        "before",
        "after",
    ]
    assert (wire.sent, wire.counts) == ([], (1, 0, 0))


def test_blank_lines_are_no_junk() -> None:
    wire = Wire()
    wire.peer.feed(b"\n\r\n  \t\n" + lines(update("on")).replace(b"\n", b"\r\n") + b"\n")
    assert (len(wire.messages), wire.counts) == (1, (0, 0, 0))


def test_a_batch_is_refused() -> None:
    wire = Wire("ask")
    wire.feed([{"id": 1, "method": "ask"}], b" []")
    assert [(one["id"], one["error"]["code"]) for one in wire.sent] == [(None, INVALID_REQUEST)] * 2
    assert (wire.messages, wire.counts) == ([], (2, 0, 0))


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """JavaScript writes them when a text is sent in parts, and a part ends within a character."""
    wire = Wire()
    wire.peer.feed(
        b'{"method":"a","params":"one \\ud83d"}\n{"method":"a","params":"\\uDE00 two \\ud83d\\ude00 \\\\ud83d"}\n'
    )
    assert [message.params for message in wire.messages if isinstance(message, Notification)] == [
        "one \ufffd",
        "\ufffd two \U0001f600 \\ud83d",
    ]
    assert wire.counts == (0, 0, 0)


@pytest.mark.parametrize("block", [1 << 16, 1 << 30])
def test_a_line_that_is_too_long_is_skipped_and_counted(block: int) -> None:
    wire = Wire(max_line_bytes=100_000)
    long = [update("x" * size) for size in (99_000, 101_000, 5_000_000)]
    data = lines(update("a"), long[0], update("b"), long[1], long[2], update("c"))
    for at in range(0, len(data), block):
        wire.peer.feed(data[at : at + block])
    assert [len(message.params["text"]) for message in wire.messages if isinstance(message, Notification)] == [
        1,
        99_000,
        1,
        1,
    ]
    assert wire.counts == (0, 2, 0)


@pytest.mark.parametrize("block", [1000, 1 << 30])
def test_the_first_line_that_is_too_long_is_in_the_log_with_its_size(
    block: int, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(max_line_bytes=10_000)
    long = update("x" * 20_000)
    data = lines(update("a"), long, long, {"id": 1, "result": "x" * 20_000}, update("b"))
    for at in range(0, len(data), block):
        wire.peer.feed(data[at : at + block])
    assert wire.counts == (0, 3, 1)
    (record,) = caplog.records
    assert (record.levelname, record.args) == (
        "WARNING",
        ("another program", "session/update", len(lines(long)) - 1, 10_000),
    )


@pytest.mark.parametrize(
    ("line", "described"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":"', "a response"),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":"', "session/request_permission"),
        (b"no json at all ", "a line that is no message"),
    ],
)
def test_a_line_that_is_too_long_and_has_no_end_is_in_the_log_at_the_end(
    line: bytes, described: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(max_line_bytes=1000)
    wire.peer.feed(line + b"x" * 5000)
    assert caplog.records == []
    wire.peer.close()
    (record,) = caplog.records
    assert record.args == ("another program", described, len(line) + 5000, 1000)


@pytest.mark.parametrize("block", [1, 700, 1 << 30])
@pytest.mark.parametrize("request_id", [0, 7, "request-7", None, 'a "quoted" id'])
def test_a_request_that_is_too_long_is_answered_with_an_error(block: int, request_id: Any) -> None:
    wire = Wire("ask", max_line_bytes=1000)
    data = lines({"jsonrpc": "2.0", "id": request_id, "method": "ask", "params": {"id": 5, "text": "x" * 2000}})
    data += lines({"jsonrpc": "2.0", "method": "ask", "id": request_id, "params": {"text": "x" * 2000}})
    for at in range(0, len(data), block):
        wire.peer.feed(data[at : at + block])
    assert [(answer["id"], answer["error"]["code"]) for answer in wire.sent] == [(request_id, INVALID_REQUEST)] * 2
    assert wire.messages == []


@pytest.mark.parametrize(
    "line",
    [
        {"jsonrpc": "2.0", "method": "ask", "params": {"id": 5, "text": "x" * 2000}, "id": 7},
        {"jsonrpc": "2.0", "method": "ask", "params": {"id": 5, "text": "x" * 2000}},
        {"id": [1], "method": "ask", "params": "x" * 2000},
        b'{"id": 1.2.3, "method": "ask", "params": "' + b"x" * 2000,
        b'"id": 7, ' + b"x" * 2000,
    ],
)
def test_no_id_is_guessed_for_a_line_that_is_too_long(line: Any) -> None:
    wire = Wire("ask", max_line_bytes=1000)
    wire.feed(line)
    assert (wire.sent, wire.messages, wire.counts) == ([], [], (0, 1, 0))


async def test_a_call_whose_response_is_too_long_fails_at_once() -> None:
    wire = Wire(max_line_bytes=1000)
    failed: list[JsonRpcError] = []

    async def call() -> None:
        with pytest.raises(JsonRpcError) as error:
            await wire.peer.call("ask", timeout=None)
        failed.append(error.value)

    with unless_hung():
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.lowlevel.checkpoint()
            wire.feed({"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * 2000}})
    assert [error.code for error in failed] == [INVALID_REQUEST]


def test_a_line_without_an_end_is_not_kept() -> None:
    wire = Wire(max_line_bytes=1000)
    for _ in range(1000):
        wire.peer.feed(b"x" * 1000)
    assert wire.counts == (0, 1, 0)
    wire.peer.feed(b"\n" + lines(update("on")))
    assert wire.messages == [Notification("session/update", {"text": "on"})]


def test_sixteen_mebibytes_in_small_blocks_are_read_in_time() -> None:
    wire = Wire(max_line_bytes=32 << 20)
    data = lines(update("x" * (16 << 20)))
    for at in range(0, len(data), 4096):
        wire.peer.feed(data[at : at + 4096])
    assert len(wire.messages) == 1


async def test_a_call_returns_its_result_and_what_came_before_it_was_delivered() -> None:
    wire = Wire()

    async def answer() -> None:
        (request,) = wire.sent
        wire.feed(update("a"), {"id": request["id"], "result": {"ok": True}}, update("b"))

    async with anyio.create_task_group() as tasks:
        with unless_hung():
            tasks.start_soon(answer)
            assert await wire.peer.call("initialize", {"v": 1}, timeout=100) == {"ok": True}
    assert wire.sent == [{"jsonrpc": "2.0", "id": wire.sent[0]["id"], "method": "initialize", "params": {"v": 1}}]
    assert wire.messages == [Notification("session/update", {"text": text}) for text in "ab"]
    assert wire.counts == (0, 0, 0)


def test_the_response_of_a_sent_request_is_delivered_in_order() -> None:
    wire = Wire("ask")
    first, second = wire.peer.send_request("session/prompt", {}), wire.peer.send_request("session/prompt")
    assert first != second
    wire.feed(
        update("a"),
        {"id": second, "result": None},
        {"id": 0, "method": "ask"},
        {"id": first, "error": {"code": -32603, "message": "broken", "data": {"x": 1}}},
        update("b"),
    )
    a, answer, ask, failure, b = wire.messages
    assert (a, b) == (Notification("session/update", {"text": "a"}), Notification("session/update", {"text": "b"}))
    assert (answer, ask) == (Response(second, None, None), Request(0, "ask", None))
    assert isinstance(failure, Response)
    assert failure.error is not None
    assert (failure.id, failure.error.code, failure.error.message) == (first, -32603, "broken")
    assert failure.error.data == {"x": 1}


async def call_with(wire: Wire, answer: dict[str, Any]) -> Any:
    result: list[Any] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            try:
                result.append(await wire.peer.call("ask", None, timeout=100))
            except JsonRpcError as error:
                result.append(error)

        tasks.start_soon(call)
        await anyio.lowlevel.checkpoint()
        wire.feed({"id": wire.sent[-1]["id"], **answer})
    return result[0]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({"code": -32000, "message": "log in"}, -32000, "log in"),
        ({"code": "E1", "message": 7}, -32603, None),
        ({}, -32603, None),
        ("broken", -32603, "broken"),
        ([1], -32603, "[1]"),
    ],
)
async def test_an_error_is_raised_however_it_is_written(error: Any, code: int, message: str | None) -> None:
    with unless_hung():
        raised = await call_with(Wire(), {"error": error})
    assert isinstance(raised, JsonRpcError)
    assert raised.code == code
    assert raised.message == message if message else raised.message
    assert str(raised)


@pytest.mark.parametrize(
    ("answer", "result"),
    [({"result": None}, None), ({"result": 0, "error": None}, 0), ({"error": None}, None), ({"result": []}, [])],
)
async def test_a_result_is_returned_however_it_is_written(answer: dict[str, Any], result: Any) -> None:
    with unless_hung():
        assert await call_with(Wire(), answer) == result


def test_a_response_to_nothing_is_counted() -> None:
    wire = Wire()
    sent = wire.peer.send_request("ask")
    strangers = ["x", None, 0, 99, True, 1.0, [1], {"a": 1}, str(sent)]
    wire.feed(*({"id": one, "result": 1} for one in strangers), {"result": 1}, {"error": {"code": 1, "message": "?"}})
    assert (wire.messages, wire.counts) == ([], (0, 0, len(strangers) + 2))
    wire.feed({"id": sent, "result": 1}, {"id": sent, "result": 2})
    assert (wire.messages, wire.counts) == ([Response(sent, 1)], (0, 0, len(strangers) + 3))


async def test_a_call_that_takes_too_long_is_cancelled_at_the_other_side() -> None:
    wire = Wire()
    with unless_hung(), pytest.raises(TimeoutError):
        await wire.peer.call("ask", None, timeout=0.01)
    asked, cancelled = wire.sent
    assert cancelled == {"jsonrpc": "2.0", "method": CANCEL_METHOD, "params": {"requestId": asked["id"]}}
    wire.feed({"id": asked["id"], "error": {"code": -32800, "message": "cancelled"}})
    assert (wire.messages, wire.counts) == ([], (0, 0, 1))


@pytest.mark.parametrize("by", ["scope", "task"])
async def test_a_call_whose_caller_is_cancelled_is_cancelled_at_the_other_side(by: str) -> None:
    wire = Wire()
    if by == "scope":
        with anyio.move_on_after(0):
            await wire.peer.call("ask", None, timeout=100)
    else:
        task = asyncio.create_task(wire.peer.call("ask", None, timeout=100))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [one["method"] for one in wire.sent] == ["ask", CANCEL_METHOD]


async def test_an_answer_and_a_cancellation_at_once_are_no_error() -> None:
    wire = Wire()
    task = asyncio.create_task(wire.peer.call("ask", None, timeout=100))
    await asyncio.sleep(0)
    wire.feed({"id": wire.sent[0]["id"], "result": 1})
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one["method"] for one in wire.sent] == ["ask"]
    task = asyncio.create_task(wire.peer.call("ask", None, timeout=100))
    await asyncio.sleep(0)
    task.cancel()
    wire.feed({"id": wire.sent[1]["id"], "error": {"code": 1, "message": "late"}})
    wire.peer.close()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_end_of_the_stream_ends_every_call() -> None:
    wire = Wire()
    ended: list[str] = []

    async def call() -> None:
        with pytest.raises(PeerClosed):
            await wire.peer.call("ask", None, timeout=100)
        ended.append("call")

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
            await anyio.lowlevel.checkpoint()
            wire.peer.close()
    assert len(ended) == 3
    assert [one["method"] for one in wire.sent] == ["ask"] * 3


async def test_nothing_is_sent_or_received_after_the_end() -> None:
    wire = Wire("ask")
    wire.peer.close()
    wire.peer.close()
    wire.feed(update("late"), {"id": 1, "method": "ask"}, {"id": 1, "method": "unknown"})
    wire.peer.notify("session/cancel")
    wire.peer.respond(1, {})
    wire.peer.respond_error(1, -32000, "no")
    with pytest.raises(PeerClosed):
        wire.peer.send_request("session/prompt")
    with pytest.raises(PeerClosed):
        await wire.peer.call("initialize", {}, timeout=100)
    assert (wire.messages, wire.sent) == ([], [])


def test_a_last_line_without_its_end_is_delivered_at_the_end() -> None:
    wire = Wire()
    wire.peer.feed(lines(update("a"), update("b"))[:-1])
    assert len(wire.messages) == 1
    wire.peer.close()
    assert len(wire.messages) == 2
    cut = Wire()
    cut.peer.feed(b'{"method":"a')
    cut.peer.close()
    assert (cut.messages, cut.counts) == ([], (1, 0, 0))


def test_a_peer_that_is_closed_by_a_message_delivers_no_other() -> None:
    messages: list[Message] = []

    def close(message: Message) -> None:
        messages.append(message)
        peer.close()

    peer = JsonRpcPeer(lambda data: None, on_message=close)
    peer.feed(lines(update("a"), update("b"), update("c"))[:-1])
    assert messages == [Notification("session/update", {"text": "a"})]


def test_a_line_that_is_taken_before_it_is_parsed_is_delivered_to_nobody_else() -> None:
    taken: list[bytes] = []
    messages: list[Message] = []

    def try_handle_line(line: bytes) -> bool:
        if b'"b"' in line:
            taken.append(line)
        return b'"b"' in line

    peer = JsonRpcPeer(lambda data: None, on_message=messages.append, try_handle_line=try_handle_line)
    data = lines(update("a"), update("b"), update("c"))
    peer.feed(data[:70])
    peer.feed(data[70:])
    assert [json.loads(line) for line in taken] == [update("b")]
    assert messages == [Notification("session/update", {"text": text}) for text in "ac"]


def test_parameters_that_are_none_are_left_out() -> None:
    wire = Wire()
    wire.peer.notify("initialized")
    number = wire.peer.send_request("logout")
    assert wire.sent == [
        {"jsonrpc": "2.0", "method": "initialized"},
        {"jsonrpc": "2.0", "id": number, "method": "logout"},
    ]


def test_a_message_can_be_answered_while_it_is_delivered() -> None:
    sent: list[Any] = []

    def answer(message: Message) -> None:
        if isinstance(message, Request):
            peer.respond(message.id, message.params)

    peer = JsonRpcPeer(lambda data: sent.append(json.loads(data)), methods=["ask"], on_message=answer)
    peer.feed(lines(*({"id": number, "method": "ask", "params": [number]} for number in range(3))))
    assert [(one["id"], one["result"]) for one in sent] == [(0, [0]), (1, [1]), (2, [2])]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
MESSAGES = st.one_of(
    TEXTS.map(update),
    st.fixed_dictionaries({"id": st.one_of(st.integers(), TEXTS, st.none()), "method": st.sampled_from(["ask", "no"])}),
    st.fixed_dictionaries({"id": st.integers(-3, 3), "result": TEXTS}),
    st.sampled_from([b"", b"junk", b"[1]", b"\xff", b'{"method":"a","params":"\\ud83d"}', b"x" * 300, b"{" * 200]),
)


@given(
    messages=st.lists(MESSAGES, max_size=12), cuts=st.lists(st.integers(0, 2000), max_size=20), has_end=st.booleans()
)
def test_how_the_bytes_are_split_changes_nothing(messages: Sequence[Any], cuts: list[int], has_end: bool) -> None:
    data = lines(*messages) if has_end else lines(*messages)[:-1]
    whole, split = Wire("ask", max_line_bytes=250), Wire("ask", max_line_bytes=250)
    for wire in (whole, split):
        wire.peer.send_request("prompt")
    whole.peer.feed(data)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(edges):
        split.peer.feed(data[begin:end])
    for wire in (whole, split):
        wire.peer.close()
    assert split.messages == whole.messages
    assert split.sent == whole.sent
    assert split.counts == whole.counts


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    wire = Wire("ask")
    wire.peer.feed(data + b"\n")
    wire.feed(update("after"))
    assert wire.messages[-1] == Notification("session/update", {"text": "after"})
