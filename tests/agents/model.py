"""The scripted model on loopback: aimock behind a proxy of ours, which keeps what the agents asked and says what aimock cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.agents.codex_front import scripted_call
from tests.scripted_api import AIMOCK, Fixture

KEY = "sk-scripted-model-4711-0815"
"""The only key that the model accepts."""
_HOP_HEADERS = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}


@dataclass(frozen=True)
class ModelRequest:
    """A request of an agent to its model."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)


@dataclass
class ScriptedModel:
    """A running model: where it listens, and what it was asked."""

    url: str
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    def requests_with(self, words: str) -> list[ModelRequest]:
        return [request for request in self.requests if words in request.text]


@contextmanager
def scripted_model(fixtures: Sequence[Fixture]) -> Generator[ScriptedModel]:
    """Run the model for the time of a `with` block. Raises: RuntimeError where there is no Node or no aimock."""
    with tempfile.TemporaryDirectory(prefix="ambient-model-") as directory:
        script = Path(directory) / "script.json"
        script.write_text(json.dumps({"fixtures": list(fixtures)}))
        with _aimock(script) as upstream:
            model = ScriptedModel("")
            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(upstream, model.requests.append))
            server.daemon_threads = True
            model.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield model
            finally:
                server.shutdown()
                server.server_close()
                thread.join()


@contextmanager
def _aimock(script: Path) -> Generator[str]:
    node = shutil.which("node")
    if node is None or not AIMOCK.is_file():
        raise RuntimeError("The scripted model needs Node and `make tests/e2e/clients/node_modules/.installed`.")
    command = [node, str(AIMOCK), "-p", "0", "-c", "12", "-l", "5", "-f", str(script)]
    with subprocess.Popen(
        command,
        env={**os.environ, "AIMOCK_API_KEYS": KEY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if "listening on" in line:
                    break
            else:
                raise RuntimeError(f"aimock ended before it listened:\n{''.join(lines)}")
            drain = Thread(target=process.stdout.read, daemon=True)
            drain.start()
            yield lines[-1].split()[-1].rstrip("/")
        finally:
            process.kill()
            drain.join()


def _handler(upstream: str, keep: Callable[[ModelRequest], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._forward(b"")

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", "0")))
            body = _decode(data)
            keep(ModelRequest(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            said = scripted_call(body) if urlsplit(self.path).path.endswith("/responses") else None
            if said is None:
                self._forward(data)
            else:
                self._send_whole(said)

        def _send_whole(self, stream: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(stream)))
            self.end_headers()
            self.wfile.write(stream)

        def _forward(self, data: bytes) -> None:
            connection = HTTPConnection(urlsplit(upstream).netloc)
            try:
                kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_HEADERS}
                connection.request(self.command, self.path, data, kept)
                self._relay(connection.getresponse())
            except (BrokenPipeError, ConnectionError):
                self.close_connection = True  # The agent has cancelled its request.
            finally:
                connection.close()

        def _relay(self, response: HTTPResponse) -> None:
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP_HEADERS:
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while piece := response.read1(65536):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    return Handler


def _decode(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
