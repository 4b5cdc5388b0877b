"""A receiver of traces and scores on loopback: what an OpenTelemetry collector or Langfuse would get, as it got it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

TRACES = "/v1/traces"
LANGFUSE_TRACES = "/api/public/otel/v1/traces"
SCORES = "/api/public/scores"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A span as it arrived; ids are hex, a root has no parent."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    error: str | None
    """The status message of a failed span; None for all others."""
    links: list[tuple[str, str]]
    start: int
    end: int
    service: str = ""


@dataclass(kw_only=True)
class Post:
    path: str
    headers: dict[str, str]
    body: bytes
    client: object = None
    """The connection it came by."""


@dataclass(kw_only=True)
class Receiver:
    """What came. `answer` is the status of the next answers; 0 accepts and never answers."""

    url: str = ""
    answer: int = 200
    posts: list[Post] = field(default_factory=list[Post])
    news: threading.Condition = field(default_factory=threading.Condition)
    over: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Answer those who wait, and everyone from now on."""
        self.answer = 200
        self.released.set()

    def take(self, post: Post) -> int:
        with self.news:
            self.posts.append(post)
            self.news.notify_all()
        if not self.answer:
            self.released.wait(60)
        return self.answer or 503

    def spans(self, path: str | None = None) -> list[Seen]:
        """Every span so far, in the order of their starts."""
        found = [
            span
            for post in self.posts
            if post.path.endswith(TRACES) and path in {None, post.path}
            for span in _spans(post.body)
        ]
        return sorted(found, key=lambda span: (span.start, -span.end))

    @property
    def scores(self) -> list[dict[str, Any]]:
        return [json.loads(post.body) for post in self.posts if post.path == SCORES]

    async def until(self, ready: Callable[[Receiver], bool], seconds: float = 10) -> None:
        """Wait until what has come is enough."""

        def wait() -> None:
            with self.news:
                assert self.news.wait_for(lambda: ready(self), seconds), f"only {len(self.posts)} requests came"

        await anyio.to_thread.run_sync(wait)


@contextmanager
def receiving(answer: int = 200) -> Iterator[Receiver]:
    """A receiver for the time of a `with` block."""
    receiver = Receiver(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.take(Post(path=self.path, headers=headers, body=body, client=self.client_address))
            if receiver.over.is_set():
                self.close_connection = True
                return
            said = b"" if self.path.endswith(TRACES) else b'{"id":"taken"}'
            with suppress(ConnectionError):  # who asked may have given up
                self.send_response(status)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(body: bytes) -> Iterator[Seen]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = {pair.key: _value(pair.value) for pair in group.resource.attributes}
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Seen(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    attributes={pair.key: _value(pair.value) for pair in span.attributes},
                    error=span.status.message if span.status.code == 2 else None,
                    links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    service=about.get("service.name", ""),
                )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
