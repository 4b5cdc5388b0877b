"""Values that were granted lately stay known: per person, for a day, within limits."""

from __future__ import annotations

from ambient_runner.services.recent_grants import RecentGrants

DAY = 24 * 3600


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_known_to_its_person_only() -> None:
    recent = RecentGrants()
    recent.remember("acme", "ann", ["token-of-ann"])
    assert recent.values_of("acme", "ann") == ["token-of-ann"]
    assert recent.values_of("acme", "bob") == recent.values_of("other", "ann") == []


def test_a_value_is_forgotten_a_day_after_it_was_last_granted() -> None:
    clock = Clock()
    recent = RecentGrants(clock=clock)
    recent.remember("acme", "ann", ["rotated", "stays"])
    clock.now = DAY / 2
    recent.remember("acme", "ann", ["stays", "new"])
    clock.now = DAY
    assert recent.values_of("acme", "ann") == ["stays", "new"]
    clock.now = 2 * DAY
    assert recent.values_of("acme", "ann") == []


def test_the_oldest_values_of_a_person_are_dropped_first() -> None:
    recent = RecentGrants()
    for at in range(100):
        recent.remember("acme", "ann", [f"token-{at}"])
    assert recent.values_of("acme", "ann") == [f"token-{at}" for at in range(36, 100)]
    recent.remember("acme", "ann", ["x" * (1 << 17), "y" * (1 << 17)])
    assert [value[0] for value in recent.values_of("acme", "ann")] == ["x", "y"]


def test_one_person_cannot_displace_another() -> None:
    recent = RecentGrants()
    recent.remember("acme", "ann", ["token-of-ann"])
    for at in range(2000):
        recent.remember("acme", "eve", [f"{at} " * 10_000])
    assert recent.values_of("acme", "ann") == ["token-of-ann"]


def test_all_values_together_are_bounded() -> None:
    recent = RecentGrants()
    for at in range(200):
        recent.remember("acme", f"person-{at}", [f"{at:03}" + "x" * ((1 << 18) - 3)])
    kept = [at for at in range(200) if recent.values_of("acme", f"person-{at}")]
    assert kept == list(range(200 - 128, 200))
