"""Profiles of the property tests.

`ci`, the default, tries the same examples in every run; `fast` fewer of them (`make test-fast`); `fuzz` searches at random
(`make fuzz`).
"""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

__all__ = ["examples", "load_profile", "register_profiles"]

_EXAMPLES = {"ci": 100, "fast": 25, "fuzz": 500}
_DATABASE = ".hypothesis/examples"


def register_profiles() -> None:
    """Register the profiles and load `ci`. pytest's `--hypothesis-profile` loads another one before tests are collected."""
    same = settings(
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # It complains of a busy machine.
    )
    settings.register_profile("ci", same, max_examples=_EXAMPLES["ci"])
    settings.register_profile("fast", same, max_examples=_EXAMPLES["fast"])
    settings.register_profile(
        "fuzz",
        same,
        max_examples=_EXAMPLES["fuzz"],
        derandomize=False,
        database=DirectoryBasedExampleDatabase(_DATABASE),
    )
    load_profile("ci")
    _ignore_loaded_modules()


def load_profile(name: Literal["ci", "fast", "fuzz"]) -> None:
    settings.load_profile(name)


def examples(count: int) -> settings:
    """Return the loaded profile with `count` examples; fewer in the profile `fast`, more in `fuzz`."""
    return settings(max_examples=max(1, count * settings().max_examples // _EXAMPLES["ci"]))


def _ignore_loaded_modules() -> None:
    """Keep Hypothesis from drawing constants that it finds in the modules of this checkout.

    Which modules are loaded depends on the tests that ran before in the same worker, and which count as ours on the name of the
    directory, so the examples would differ from run to run.
    """
    from hypothesis.internal.conjecture import providers

    internals: Any = providers
    none_found = internals._local_constants
    internals._get_local_constants = lambda: none_found
