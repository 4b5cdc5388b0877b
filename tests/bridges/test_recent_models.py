from __future__ import annotations

from ambient_runner.bridges.recent_models import RecentModels
from ambient_runner.protocol.message_models import MessageModels
from ambient_runner.runs.run import Actor
from tests.world import KEY, user

ACTOR = Actor()


def models_of(count: int) -> MessageModels:
    models = MessageModels()
    models.convert([user(f"u{number}") for number in range(count)])
    return models


def test_models_are_taken_by_one_run() -> None:
    recent, models = RecentModels(), models_of(1)
    recent.put((KEY, ACTOR), models)
    assert recent.take((KEY, ACTOR)) is models
    assert recent.take((KEY, ACTOR)) is not models


def test_models_of_the_threads_used_longest_ago_go_first() -> None:
    first, second, third = ((KEY._replace(id=name), ACTOR) for name in ("first", "second", "third"))
    known = {slot: models_of(10) for slot in (first, second, third)}
    recent = RecentModels(max_bytes=2 * models_of(10).size)
    for slot in (first, second):
        recent.put(slot, known[slot])
    recent.put(first, recent.take(first))
    recent.put(third, known[third])
    assert [recent.take(slot) is known[slot] for slot in (first, second, third)] == [True, False, True]


def test_a_thread_that_is_too_large_is_not_kept() -> None:
    recent, models = RecentModels(max_bytes=100), models_of(1)
    recent.put((KEY, ACTOR), models)
    assert recent.take((KEY, ACTOR)) is not models
