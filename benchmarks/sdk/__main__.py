"""`python -m benchmarks.sdk loop NAME` runs the bare loop once per prompt on its standard input; `serve NAME` the published adapter."""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import uvloop

from benchmarks.serving import serve


def main() -> None:
    what, name = sys.argv[1:]
    module = importlib.import_module(f"benchmarks.sdk.{name}_agent")
    if what == "serve":
        serve(module.published())
    else:
        uvloop.run(_loops(module))


async def _loops(module: Any) -> None:
    print("ready", flush=True)
    for prompt in sys.stdin:
        used, began = time.process_time(), time.perf_counter()
        count = await module.loop(prompt.strip())
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        print(json.dumps({"events": count, "seconds": seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
