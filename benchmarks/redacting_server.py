"""This server with and without redaction, and otherwise alike: `python -m benchmarks.redacting_server redacted|unredacted STORE`."""

from __future__ import annotations

import sys

from fastapi import FastAPI

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.projections.redaction import Secrets
from benchmarks.redaction import known_values
from benchmarks.serving import serve


def build_app(*, redacts: bool, store: str) -> FastAPI:
    """Return an app with the demo agent; without redaction, nothing is searched for."""
    app = FastAPI()
    secrets = Secrets(known_values()) if redacts else Secrets((), patterns=())
    add_ambient_endpoints(app, DemoBridge(), settings=Settings(store=store), secrets=secrets)
    return app


if __name__ == "__main__":
    serve(build_app(redacts=sys.argv[1] == "redacted", store=sys.argv[2]))
