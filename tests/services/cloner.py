"""A process that clones: `python cloner.py <root> <url>`. It says `done` when the repository is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

from ambient_runner.ledger.records import ThreadKey
from ambient_runner.services.workspaces.clone_sources import SourceRules
from ambient_runner.services.workspaces.repos import Repos
from ambient_runner.services.workspaces.workspaces import Workspaces

ANN = ThreadKey("default", "ann", "trip")


async def main(root: Path, url: str) -> None:
    workspaces = Workspaces(
        root, rules=SourceRules(schemes=("http",), allow_private=True), git_environment={"PATH": os.environ["PATH"]}
    )
    async with workspaces:
        added = await (await Repos(workspaces).add(ANN, url, name="app", environment={})).wait_for_result()
    print("new" if added.newly_cloned else "there", flush=True)


anyio.run(main, Path(sys.argv[1]), sys.argv[2])
