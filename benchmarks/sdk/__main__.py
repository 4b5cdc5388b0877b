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
    command, name = sys.argv[1:]
    module = importlib.import_module(f"benchmarks.sdk.{name}_agent")
    if command == "serve":
        serve(module.build_published_app())
    else:
        uvloop.run(_run_loops(module))


async def _run_loops(module: Any) -> None:
    print("ready", flush=True)
    for prompt in sys.stdin:
        cpu_start, start = time.process_time(), time.perf_counter()
        count = await module.run_loop(prompt.strip())
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
        print(json.dumps({"events": count, "seconds": seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
