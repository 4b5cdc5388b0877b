"""Work in threads: what it was given and what it returned belongs to the caller alone."""

from __future__ import annotations

import weakref

from ambient_runner.runs.large_work import LARGE_BYTES, run_in_thread_if_large


class Value:
    """An object that ends once nobody holds it."""


async def test_a_thread_holds_neither_arguments_nor_results_of_work_that_has_ended() -> None:
    """Models of messages are used again only if nobody else holds them, and the thread may be suspended before it forgets its work."""
    for _ in range(200):
        given = Value()
        returned = await run_in_thread_if_large(LARGE_BYTES + 1, _wrap, given)
        refs = [weakref.ref(returned), weakref.ref(given)]
        del given, returned
        assert [ref() for ref in refs] == [None, None]


def _wrap(value: Value) -> Value:
    wrapper = Value()
    wrapper.__dict__["value"] = value
    return wrapper
