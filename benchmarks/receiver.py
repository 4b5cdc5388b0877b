"""A trace receiver that accepts every POST and discards it. GET returns the number of accepted POSTs."""

from __future__ import annotations

from typing import Any

from benchmarks.serving import serve


class Receiver:
    """Takes the place of an OpenTelemetry collector and of Langfuse: both respond to a batch with 200 and an empty body."""

    def __init__(self) -> None:
        self._post_count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        is_get = scope["method"] == "GET"
        self._post_count += not is_get
        body = str(self._post_count).encode() if is_get else b""
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    serve(Receiver())
