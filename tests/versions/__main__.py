"""Run the tests at both ends of every SDK's range, print the table and write it into docs/reference/versions.md.

python -m tests.versions              # all SDKs
python -m tests.versions strands mcp  # those whose name begins so; the page is not written
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from tests.environments import ROOT, make_environment
from tests.tables import markdown_table, replace_table
from tests.versions.sdks import TOOLS, SdkRange, sdk_ranges

PAGE = ROOT / "docs" / "reference" / "versions.md"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Counts of one run of an SDK's tests."""

    sdk: str
    end: str
    version: str
    passed: int
    failed: int
    skipped: int

    def row(self) -> list[str]:
        return [self.sdk, self.end, self.version, str(self.passed), str(self.failed), str(self.skipped)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of SDK names")
    parser.add_argument("--workers", default="2")
    options = parser.parse_args()
    chosen = [sdk for sdk in sdk_ranges() if not options.names or sdk.name.startswith(tuple(options.names))]
    results = [
        run_tests(sdk, end, requirement, options.workers) for sdk in chosen for end, requirement in sdk.ends().items()
    ]
    table = markdown_table(
        ["SDK", "end", "version", "passed", "failed", "skipped"], [result.row() for result in results]
    )
    print(table)
    if not options.names:
        replace_table(PAGE, "versions", table)
    return 1 if any(result.failed or not result.passed for result in results) else 0


def run_tests(sdk: SdkRange, end: str, requirement: str, workers: str) -> Result:
    """Install one end of the range and run its tests."""
    requirements = [f"-e{ROOT}[{sdk.extra},remote,otel]", requirement, *TOOLS, *sdk.requirements]
    name = f"versions/{sdk.name.replace(' ', '-')}-{end}"
    environment = make_environment(name, requirements)
    with TemporaryDirectory() as directory:
        report = f"{directory}/report.xml"
        # Older versions warn about what they did not know yet.
        arguments = ("-m", "pytest", "-q", "-n", workers, "-o", "filterwarnings=default", f"--junitxml={report}")
        finished = environment.run(*arguments, *sdk.tests)
        suite = ET.parse(report).getroot()[0].attrib
    failed = int(suite["failures"]) + int(suite["errors"])
    if failed:
        print("\n".join(finished.stdout.splitlines()[-40:]), file=sys.stderr)
    skipped = int(suite["skipped"])
    return Result(
        sdk=sdk.package,
        end=end,
        version=environment.version_of(sdk.package),
        passed=int(suite["tests"]) - failed - skipped,
        failed=failed,
        skipped=skipped,
    )


if __name__ == "__main__":
    raise SystemExit(main())
