"""Profiles of the property tests: `ci` (the default) tries the same examples in every run, `fuzz` searches at random (`make fuzz`)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

__all__ = ["examples", "load_profiles"]

_CI_EXAMPLES = 100
_FUZZ_EXAMPLES = 500
_DATABASE = ".hypothesis/examples"
_SLOW_MACHINE = [HealthCheck.too_slow]
"""Says how busy the machine is, nothing about the code."""


def load_profiles() -> None:
    """Register both profiles and load `ci`. pytest's `--hypothesis-profile` replaces it before tests are collected."""
    settings.register_profile(
        "ci",
        max_examples=_CI_EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=_SLOW_MACHINE,
    )
    settings.register_profile(
        "fuzz",
        max_examples=_FUZZ_EXAMPLES,
        deadline=None,
        database=DirectoryBasedExampleDatabase(_DATABASE),
        print_blob=True,
        suppress_health_check=_SLOW_MACHINE,
    )
    settings.load_profile("ci")
    _ignore_loaded_modules()


def examples(count: int) -> settings:
    """Return the loaded profile with `count` examples, or as many times more as the profile has more than `ci`."""
    return settings(max_examples=count * settings().max_examples // _CI_EXAMPLES)


def _ignore_loaded_modules() -> None:
    """Keep Hypothesis from drawing constants that it finds in the modules of this checkout.

    Which modules are loaded depends on the tests that ran before in the same worker, and which count as ours on the name of the
    folder, so the examples would differ from run to run.
    """
    from hypothesis.internal.conjecture import providers

    internals: Any = providers
    none_found = internals._local_constants
    internals._get_local_constants = lambda: none_found
