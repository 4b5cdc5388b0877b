"""Large bodies in pieces, in apps whose server does not disconnect clients that do not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from prometheus_client import REGISTRY

from ambient_runner.server.bounded_send import LargeJsonResponse
from ambient_runner.server.direct_send import SERVER_CONNECTION
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from starlette.types import Message

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/message_snapshot/t"}
CONTENT = b'"' + b"x" * 300_000 + b'"'


class Client:
    """Collects messages, and accepts no more than a number of them until it goes on."""

    def __init__(self, accepts: int = 1_000) -> None:
        self.messages: list[Message] = []
        self.stalled = anyio.Event()
        self.goes_on = anyio.Event()
        self._accepts = accepts

    async def send(self, message: Message) -> None:
        if len(self.messages) == self._accepts:
            self.stalled.set()
            await self.goes_on.wait()
        self.messages.append(message)

    async def receive(self) -> Message:
        raise NotImplementedError

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def has_whole_body(self) -> bool:
        return not self.messages[-1].get("more_body", True) and self.body == CONTENT


def disconnected_slow_clients() -> float:
    return REGISTRY.get_sample_value("ambient_slow_clients_disconnected_total") or 0.0


async def test_a_large_body_is_sent_in_pieces() -> None:
    client = Client()
    await LargeJsonResponse(CONTENT, slow_reader=HANG_SECONDS)(SCOPE, client.receive, client.send)
    assert client.has_whole_body
    assert max(len(message["body"]) for message in client.messages[1:]) == 1 << 16
    assert (b"content-length", b"%d" % len(CONTENT)) in client.messages[0]["headers"]


async def test_a_small_body_is_one_message() -> None:
    client = Client()
    await LargeJsonResponse({"a": 1}, slow_reader=HANG_SECONDS)(SCOPE, client.receive, client.send)
    assert [message.get("body") for message in client.messages] == [None, b'{"a":1}']


async def test_a_response_whose_client_reads_nothing_ends_incomplete() -> None:
    client, before = Client(accepts=2), disconnected_slow_clients()
    with unless_hung():
        await LargeJsonResponse(CONTENT, slow_reader=0.05)(SCOPE, client.receive, client.send)
    assert client.stalled.is_set()
    assert [message.get("more_body") for message in client.messages] == [None, True]
    assert disconnected_slow_clients() == before + 1


@pytest.mark.parametrize(
    ("scope", "slow_reader"), [(SCOPE, HANG_SECONDS), ({**SCOPE, SERVER_CONNECTION: object()}, 0.0)]
)
async def test_a_client_that_goes_on_in_time_gets_the_whole_body(scope: dict[str, Any], slow_reader: float) -> None:
    """A protocol that disconnects slow clients knows whether they read: nothing else disconnects them then."""
    client = Client(accepts=2)
    with unless_hung():
        async with anyio.create_task_group() as tasks:
            response = LargeJsonResponse(CONTENT, slow_reader=slow_reader)
            tasks.start_soon(response, scope, client.receive, client.send)
            await client.stalled.wait()
            client.goes_on.set()
    assert client.has_whole_body
