"""Run the examples of the published packages on `ambient_runner.compat`, print the table and write it into docs/how-to/migrate.md.

Each package has an environment of its own, with its newest version and what that brings along. The examples are in `tests/compat/PACKAGE`:
those of the package's repository or README, with scripted models.

    python -m tests.migrate                # all packages
    python -m tests.migrate ag_ui_strands  # one of them; the page is not written
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from tests.environments import ROOT, make_environment
from tests.tables import markdown_table, replace_table
from tests.versions.sdks import TOOLS

PAGE = ROOT / "docs" / "how-to" / "migrate.md"


@dataclass(frozen=True, kw_only=True)
class Package:
    """A published package: the name of its module, its distribution, and the extra of ours that it is replaced by."""

    module: str
    distribution: str
    extra: str
    requirements: tuple[str, ...] = ()

    @property
    def tests(self) -> str:
        return f"tests/compat/test_{self.module}_examples.py"


PACKAGES = [
    Package(module="ag_ui_strands", distribution="ag_ui_strands", extra="strands"),
    Package(module="ag_ui_adk", distribution="ag_ui_adk", extra="adk"),
    Package(module="adk_agui_middleware", distribution="adk-agui-middleware", extra="adk"),
    Package(
        module="ag_ui_langgraph",
        distribution="ag-ui-langgraph",
        extra="langgraph",
        requirements=("langchain", "strands-agents"),
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="modules of published packages")
    options = parser.parse_args()
    rows = [
        row
        for package in PACKAGES
        if package.module in (options.modules or [package.module])
        for row in run_examples(package)
    ]
    table = markdown_table(["package", "version", "example", "with the import changed"], rows)
    print(table)
    if not options.modules:
        replace_table(PAGE, "examples", table)
    return 1 if any(row[-1] != "passes" for row in rows) else 0


def run_examples(package: Package) -> list[list[str]]:
    """Install a published package and run its examples. Return a row per example."""
    requirements = [f"-e{ROOT}[{package.extra},otel,remote]", package.distribution, *TOOLS, *package.requirements]
    environment = make_environment(f"migrate/{package.module}", requirements)
    version = environment.version_of(package.distribution)
    with TemporaryDirectory() as directory:
        report = f"{directory}/report.xml"
        finished = environment.run(
            "-m", "pytest", "-q", "-o", "filterwarnings=default", f"--junitxml={report}", package.tests
        )
        cases = list(ET.parse(report).getroot().iter("testcase"))
    if finished.returncode:
        print("\n".join(finished.stdout.splitlines()[-40:]), file=sys.stderr)
    return [[package.module, version, _example_name(case), "fails" if len(case) else "passes"] for case in cases]


def _example_name(case: ET.Element) -> str:
    return case.attrib["name"].removeprefix("test_").partition("[")[0]


if __name__ == "__main__":
    raise SystemExit(main())
