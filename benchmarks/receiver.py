"""A receiver of traces that is up: it takes whatever is posted, keeps none of it, and tells how many posts it took to whoever asks."""

from __future__ import annotations

from typing import Any

from benchmarks.serving import serve


class Receiver:
    """Stands for an OpenTelemetry collector and for Langfuse: both answer a batch with 200 and nothing to say."""

    def __init__(self) -> None:
        self._taken = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        asked = scope["method"] == "GET"
        self._taken += not asked
        said = str(self._taken).encode() if asked else b""
        headers = [(b"content-length", str(len(said)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": said})


if __name__ == "__main__":
    serve(Receiver())
