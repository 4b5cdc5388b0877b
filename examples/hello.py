"""A client that uses only the standard library: send a message to a running server and print the answer as it is streamed.

Start a server with `ambient serve`, then run `python examples/hello.py "weather Lisbon"`.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

URL = "http://127.0.0.1:8000/"


def run_agent(text: str, url: str = URL) -> Iterator[dict[str, Any]]:
    """Start a run on a new thread and yield its events."""
    body = {
        "threadId": str(uuid4()),
        "runId": str(uuid4()),
        "protocolVersion": "1.0",
        "messages": [{"id": str(uuid4()), "role": "user", "content": text}],
    }
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    request = Request(url, json.dumps(body).encode(), headers)  # noqa: S310  our own server
    with urlopen(request) as response:  # noqa: S310
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def main() -> None:
    for event in run_agent(" ".join(sys.argv[1:]) or "help"):
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT":
                print(event["delta"], end="", flush=True)
            case "TEXT_MESSAGE_END":
                print()
            case "TOOL_CALL_RESULT":
                print(f"tool result: {event['content']}")
            case "RUN_ERROR":
                sys.exit(event["message"])
            case _:
                pass


if __name__ == "__main__":
    main()
