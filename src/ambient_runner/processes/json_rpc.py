"""One side of a JSON-RPC 2.0 connection over lines of JSON: bytes in, messages out, and the other way round.

It does no I/O and has no task: `ChildProcess` or a socket feeds it, and `write` takes what it sends. It is tolerant, since the other side
may be any program: what is not JSON-RPC is counted and skipped. Of messages that are too long the first is logged, and nobody waits for
them: a request gets an error, a call raises one, if the id is at the beginning. Messages are delivered in the order in which they arrived.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from ambient_runner.processes.json_lines import LineBuffer, is_line_too_deep, replace_lone_surrogates
from ambient_runner.processes.json_rpc_messages import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    JsonRpcError,
    Notification,
    RawMessage,
    Request,
    Response,
    begins_result,
    describe_head,
    is_request_id,
    parse_error,
    parse_head,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ambient_runner.processes.json_rpc_messages import Message, RequestId

__all__ = ["CANCEL_METHOD", "JsonRpcPeer", "PeerClosed"]

logger = logging.getLogger(__name__)

CANCEL_METHOD = "$/cancel_request"

_MAX_LINE_BYTES = 16 << 20
_MAX_NAME = 100  # characters of an unknown method that are repeated in the answer
_BLANK = b" \t\r"


class PeerClosed(Exception):
    """The connection to the other side has ended."""


class JsonRpcPeer:
    """Parses what the other side sends, and sends requests, notifications and answers to it.

    `on_message` gets every notification, every request whose method is in `methods`, and every response to a `send_request`. It must not
    raise. It may call any method of the peer but `feed`. `try_handle_line` is offered every line before it is parsed, and returns
    True if that was all: a program that sends many messages of one kind has a faster way to read them. `name` is the other side's in the
    log.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        methods: Collection[str] = (),
        on_message: Callable[[Message], None],
        try_handle_line: Callable[[bytes], bool] | None = None,
        max_line_bytes: int = _MAX_LINE_BYTES,
        name: str = "another program",
    ) -> None:
        self.junk_lines = 0
        """Lines that are no JSON-RPC message."""
        self.unmatched_responses = 0
        """Responses to no request of ours, or to a call that was given up."""
        self.is_closed = False
        self._is_feeding = False
        self._write = write
        self._methods = frozenset(methods)
        self._on_message = on_message
        self._try_handle_line = try_handle_line
        self._lines = LineBuffer(max_line_bytes, self._handle_oversized)
        self._max_line_bytes = max_line_bytes
        self._name = name
        self._has_logged = False
        self._decode = msgspec.json.Decoder(RawMessage).decode
        self._ids = count(1)
        self._calls: dict[RequestId, asyncio.Future[Any]] = {}
        self._requests: set[RequestId] = set()

    @property
    def oversized_lines(self) -> int:
        """Lines longer than `max_line_bytes`."""
        return self._lines.oversized

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the other side and deliver the messages that end in them."""
        self._is_feeding = True
        try_handle_line = self._try_handle_line
        for line in self._lines.split(data):
            if self.is_closed:
                return
            if try_handle_line is None or not try_handle_line(line):
                self._receive(line)
        self._is_feeding = False

    def close(self) -> None:
        """Deliver a last line without its end, and let pending calls raise PeerClosed. Nothing is sent or received from now on."""
        if self.is_closed:
            return
        if not self._is_feeding and (line := self._lines.take_rest()):
            self._receive(line)
        self.is_closed = True
        calls, self._calls = self._calls, {}
        self._requests.clear()
        for future in calls.values():
            if not future.done():
                future.set_exception(PeerClosed())

    async def call(self, method: str, params: Any = None, *, timeout: float | None) -> Any:
        """Send a request and return its result. The other side is informed when the caller gives up.

        Raises: JsonRpcError, PeerClosed, TimeoutError.
        """
        request_id = self._send(method, params)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[request_id] = future
        try:
            with anyio.fail_after(timeout):
                return await future
        finally:
            if self._calls.pop(request_id, None) is not None:
                self.notify(CANCEL_METHOD, {"requestId": request_id})

    def send_request(self, method: str, params: Any = None) -> RequestId:
        """Send a request whose response goes to `on_message`, in order with all other messages. Raises: PeerClosed."""
        request_id = self._send(method, params)
        self._requests.add(request_id)
        return request_id

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; nothing once the connection has ended."""
        self._write_message({"jsonrpc": "2.0", "method": method, **_params(params)})

    def respond(self, request_id: RequestId, result: Any) -> None:
        """Answer a request with a result; nothing once the connection has ended."""
        self._write_message({"jsonrpc": "2.0", "id": request_id, "result": result})

    def respond_error(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a request with an error; nothing once the connection has ended."""
        self._write_message({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})

    def _handle_oversized(self, head: bytes, size: int) -> None:
        """Let nobody wait for a message that is too long."""
        self._log_oversized(head, size)
        members, rest = parse_head(head)
        request_id, text = members.get("id"), f"The message is too long: at most {self._max_line_bytes} bytes are read"
        if "id" not in members or not is_request_id(request_id):
            return
        if "method" in members:
            self.respond_error(request_id, INVALID_REQUEST, text)
        elif begins_result(rest):
            self._receive_response(RawMessage(id=request_id, error={"code": INVALID_REQUEST, "message": text}))

    def _log_oversized(self, head: bytes, size: int) -> None:
        """Log the first message that is too long, by its method. Its text is not ours to log."""
        if self._has_logged:
            return
        self._has_logged = True
        logger.warning(
            "A message of %s was dropped because it is too long: %s, %d bytes, of which at most %d are read. "
            "Further ones are dropped without a line here. A request gets an error as its answer, if its id is at the beginning.",
            self._name,
            describe_head(head),
            size,
            self._max_line_bytes,
        )

    def _send(self, method: str, params: Any) -> int:
        if self.is_closed:
            raise PeerClosed
        request_id = next(self._ids)
        self._write_message({"jsonrpc": "2.0", "id": request_id, "method": method, **_params(params)})
        return request_id

    def _write_message(self, message: dict[str, Any]) -> None:
        if not self.is_closed:
            self._write(msgspec.json.encode(message) + b"\n")

    def _receive(self, line: bytes) -> None:
        try:
            message = self._decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._receive_junk(line)
            return
        if is_line_too_deep(line):
            self.junk_lines += 1
        elif type(message.method) is not str:
            self._receive_response(message)
        elif message.id is msgspec.UNSET:
            self._on_message(Notification(message.method, message.params))
        else:
            self._receive_request(message)

    def _receive_junk(self, line: bytes) -> None:
        """Count a line that cannot be decoded, unless it is blank or can be repaired."""
        start = line.lstrip(_BLANK)[:1]
        if not start:
            return
        if repaired := replace_lone_surrogates(line):
            self._receive(repaired)
            return
        self.junk_lines += 1
        if self.junk_lines == 1:
            logger.warning("%s writes lines that are no JSON-RPC messages. They are passed over.", self._name)
        if start == b"[":
            self.respond_error(None, INVALID_REQUEST, "Batches are not supported")

    def _receive_request(self, message: RawMessage) -> None:
        if not is_request_id(message.id):
            self.junk_lines += 1
            self.respond_error(None, INVALID_REQUEST, "The id is not a string, a number or null")
        elif message.method in self._methods:
            self._on_message(Request(message.id, message.method, message.params))
        else:
            self.respond_error(message.id, METHOD_NOT_FOUND, f"Method not found: {message.method[:_MAX_NAME]}")

    def _receive_response(self, message: RawMessage) -> None:
        if message.method is not msgspec.UNSET or (message.result is msgspec.UNSET and message.error is msgspec.UNSET):
            self.junk_lines += 1
            return
        request_id = message.id if type(message.id) is int else None
        result = None if message.result is msgspec.UNSET else message.result
        error = parse_error(message.error)
        if future := self._calls.pop(request_id, None):
            _resolve(future, result, error)
        elif request_id in self._requests:
            self._requests.discard(request_id)
            self._on_message(Response(request_id, result, error))
        else:
            self.unmatched_responses += 1


def _params(params: Any) -> dict[str, Any]:
    """Return the member for the parameters. Null is none of the values it may have."""
    return {} if params is None else {"params": params}


def _resolve(future: asyncio.Future[Any], result: Any, error: JsonRpcError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
