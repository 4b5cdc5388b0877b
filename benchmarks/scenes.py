"""The table of all measurements, in the order of the page. A new scene is one line here and one module with what `Scene` asks for."""

from __future__ import annotations

from typing import Any

from benchmarks import (
    burst,
    cold,
    command_line,
    connect,
    fanout,
    first,
    frameworks,
    growth,
    idle,
    known_secrets,
    live,
    memory,
    pauses,
    redaction,
    repeated_messages,
    replay,
    resume,
    shapes,
    short_runs,
    startup,
    text_shapes,
    threads,
    tracing,
    turns,
    warm,
    web,
    working_set,
)
from benchmarks.scene import Scene, find_nothing_missing


def _describe(name: str, title: str, module: Any, *, is_daily: bool = False, has_pauses: bool = True) -> Scene:
    """Return the scene of a module with `PLANS`, `count_steps`, `measure`, `build_section` and, if it needs more, `find_missing`."""
    return Scene(
        name=name,
        title=title,
        plans=module.PLANS,
        count_steps=module.count_steps,
        measure=module.measure,
        build_section=module.build_section,
        is_daily=is_daily,
        has_pauses=has_pauses,
        find_missing=getattr(module, "find_missing", find_nothing_missing),
    )


_SERVING = (
    _describe("burst", "20,000 deltas", burst, is_daily=True),
    _describe("shapes", "what agents send", shapes),
    _describe("texts", "deltas of real texts", text_shapes),
    _describe("redaction", "redaction", redaction, has_pauses=False),
    _describe("secrets", "200 secrets", known_secrets),
    _describe("first", "POST to RUN_STARTED", first, is_daily=True),
    _describe("short_runs", "short runs on new threads", short_runs, is_daily=True),
    _describe("warm", "short runs on one thread", warm, is_daily=True),
    _describe("cold", "POST to a thread not in memory", cold, is_daily=True),
    _describe("turns", "many threads in turn", turns, is_daily=True),
    _describe("repeated_messages", "clients that post all messages", repeated_messages),
    _describe("replay", "replay of a whole thread", replay, is_daily=True),
    _describe("resume", "resume in the middle of a run", resume, is_daily=True),
    _describe("connect", "connect to a long thread", connect),
    _describe("threads", "list of threads", threads),
    _describe("live", "live streams", live),
    _describe("fanout", "one run, 1,000 readers", fanout),
    _describe("idle", "idle streams", idle),
    _describe("memory", "memory over long runs", memory),
    _describe("working_set", "threads that do not fit", working_set),
)
SCENES = (
    *_SERVING,
    pauses.build_scene(_SERVING),
    _describe("growth", "growth with history", growth),
    _describe("startup", "start", startup, is_daily=True),
    _describe("web", "fold in a page", web),
    _describe("tracing", "tracing, receiver down", tracing),
    _describe("frameworks", "agents of SDKs", frameworks),
    _describe("command_line", "command-line agents", command_line),
)
