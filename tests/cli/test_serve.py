"""What `ambient serve` says: a request to try it with, and what to do when the port is taken."""

from __future__ import annotations

import json
import shlex
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.cli.serve import print_banner
from ambient_runner.server.home_page import curl_command

if TYPE_CHECKING:
    from collections.abc import Callable


def sent(line: str) -> tuple[str, dict[str, Any]]:
    """Where a line of curl sends what."""
    words = shlex.split(line)
    assert words[:2] == ["curl", "-N"]
    return words[2], json.loads(words[words.index("-d") + 1])


def test_the_line_to_try_fits_every_agent_and_the_demo_has_an_example_of_its_own() -> None:
    said = {name: sent(curl_command("http://h:1", name)) for name in ("demo", "mine")}
    hello = {"protocolVersion": "1.0", "messages": [{"role": "user", "content": "hello"}]}
    weather = {"protocolVersion": "1.0", "messages": [{"role": "user", "content": "weather Lisbon"}]}
    assert said == {"demo": ("http://h:1/", weather), "mine": ("http://h:1/", hello)}


def test_an_agent_that_is_not_the_first_is_tried_at_its_own_path() -> None:
    assert sent(curl_command("http://h:1", "mine", path="/agents/mine"))[0] == "http://h:1/agents/mine"


async def test_the_line_to_try_can_be_pasted_again() -> None:
    """With a fixed thread and message id, the second time went back to the first and dropped what came after it."""
    app = create_app(Settings(store="memory://"), {"demo": DemoBridge()})
    url, body = sent(curl_command("http://127.0.0.1:8000", "demo"))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
        for _ in range(2):
            answer = await client.post(url, json=body)
            assert (answer.status_code, "RUN_FINISHED" in answer.text, '"1.0"' in answer.text) == (200, True, True)
        threads = (await client.get("http://127.0.0.1:8000/thread/list")).json()
    assert len(threads["threads"]) == 2


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_a_busy_port_error_suggests_the_variable(ambient: Callable[..., Any], command: str) -> None:
    """`make run` takes no `--port`."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, out, err = ambient(command, "--port", str(port))
    assert f"AMBIENT_PORT={port % 65535 + 1}" in " ".join((out + err).split())


def test_names_that_look_like_markup_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """`store = "sqlite:///[/x].db"` ended the start with a MarkupError."""
    print_banner("http://h:1", Settings(store="sqlite:///[/x].db"), ["demo", "[bold]"])
    out = capsys.readouterr().out
    assert ("sqlite:///[/x].db" in out, "demo, [bold]" in out) == (True, True)
