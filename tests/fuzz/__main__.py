"""Search at random for examples that fail the property tests: `make fuzz MINUTES=10`.

Every pass runs all of them with another seed. A failing example is printed, and stays in `.hypothesis/`, so that the line printed
for it tries that example first.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import sys
import time

import pytest

_HANG = 1200  # seconds for one test
_MAX_SEED = 1 << 32


class _Failures:
    """Collects the ids of tests that fail."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.ids:
            self.ids.append(report.nodeid)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", default="2")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files to search in, instead of all")
    options = parser.parse_args()
    until = time.time() + options.minutes * 60
    passes = 0
    while time.time() < until:
        seed = secrets.randbelow(_MAX_SEED)
        passes += 1
        print(f"Pass {passes}, seed {seed}, {max(0.0, until - time.time()) / 60:.1f} minutes left", flush=True)
        failures = _Failures()
        arguments = ["-q", "-m", "hypothesis", "-n", options.workers, "--hypothesis-profile=fuzz"]
        arguments += [f"--hypothesis-seed={seed}", f"--timeout={_HANG}", f"--fuzz-until={until}", *options.tests]
        code = pytest.main(arguments, plugins=[failures])
        if failures.ids or code != pytest.ExitCode.OK:
            _print_reproduction(failures.ids)
            return 1
    print(f"{passes} passes found nothing.")
    return 0


def _print_reproduction(failed: list[str]) -> None:
    print("\nTo try a failing example again, and then to keep it as an @example of its test:")
    for test in failed:
        print(f"  {sys.executable} -m pytest --hypothesis-profile=fuzz {shlex.quote(test)}")


if __name__ == "__main__":
    raise SystemExit(main())
