"""The program on the page `how-to/frontend.md`, run as it stands there by both official clients."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from .server import Child

CLIENTS = Path(__file__).with_name("clients")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "frontend.md"


def program(package: str, url: str) -> str:
    """The page's program, for the package as it is called here and a server that listens elsewhere."""
    found = re.search(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1].replace('"@ag-ui/client"', f'"{package}"').replace("http://127.0.0.1:8000", url)


@pytest.mark.parametrize("package", ["ag-ui-client-1.0", "ag-ui-client-0.0.59"])
def test_the_program_on_the_page_runs(server: Child, package: str) -> None:
    if shutil.which("node") is None or not (CLIENTS / "node_modules" / package).is_dir():
        pytest.skip("Node or the official clients are not installed: run `npm install` in tests/e2e/clients")
    ran = program(package, server.url) + "\nconsole.log(agent.messages.map(({ role }) => role).join());"
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", ran],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        cwd=CLIENTS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "user,assistant,tool,assistant,user,assistant,assistant"
    assert "".join(lines[:-1]).endswith("Approved: I may deploy.")
