"""The pages of the AG-UI dojo against agents of every framework, through the official clients.

One server has all agents (`app.py`), and one Node process runs all conversations (`tests/e2e/clients/dojo.mjs`).
"""

from __future__ import annotations

import json
import subprocess
from typing import Any
from uuid import uuid4

import pytest

from tests.dojo.conversation import Conversation, Missing
from tests.dojo.differences import CLIENT_LIMITATIONS, FRAMEWORKS, KNOWN_FAILURES, features_of
from tests.dojo.docs_page import PAGE, render_page
from tests.dojo.features import Feature
from tests.e2e.leaving import serving
from tests.e2e.test_clients import CLIENTS, OLDER, PACKAGES, installed
from tests.machine_speed import HANG_SECONDS

Reports = dict[str, dict[str, Any]]
CELLS = [
    pytest.param(feature, framework, id=f"{feature.name}-{framework}")
    for framework in FRAMEWORKS
    for feature in features_of(framework)
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, long: bool) -> Reports:
    """The conversations of each client with each agent."""
    clients = {installed(name): "" for name in PACKAGES} | (OLDER if long else {})
    conversations = {
        f"{framework}-{feature.name}": feature.conversation
        for framework in FRAMEWORKS
        for feature in features_of(framework)
    }
    with serving("tests.dojo.app:app", tmp_path_factory.mktemp("dojo")) as server:
        job = {"url": server.url, "prefix": uuid4().hex[:8], "clients": clients, "conversations": conversations}
        done = subprocess.run(
            ["node", str(CLIENTS / "dojo.mjs")],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
            cwd=CLIENTS,
        )
        assert done.returncode == 0, f"{done.stderr}\n{server.output[-3000:]}"
    return json.loads(done.stdout)


def find_missing(reports: Reports, feature: Feature, framework: str) -> dict[str, str]:
    """Return what the page of this feature does not get, by client; nothing if all is well."""
    missing: dict[str, str] = {}
    for client, seen in reports.items():
        try:
            feature.check(Conversation.from_report(seen[f"{framework}-{feature.name}"]))
        except Missing as error:
            missing[client] = str(error)
    return missing


@pytest.mark.parametrize(("feature", "framework"), CELLS)
def test_a_page_gets_what_it_reads(reports: Reports, feature: Feature, framework: str) -> None:
    missing = find_missing(reports, feature, framework)
    expected = [client for client in reports if (feature.name, client) in CLIENT_LIMITATIONS]
    if (feature.name, framework) in KNOWN_FAILURES:
        assert missing, "it works now: remove it from KNOWN_FAILURES and run `make features`"
    else:
        assert missing == {client: missing.get(client, "works now") for client in expected}


def test_the_table_in_the_docs_is_what_the_clients_saw(reports: Reports, request: pytest.FixtureRequest) -> None:
    works = {
        (feature.name, framework): not (find_missing(reports, feature, framework).keys() & set(PACKAGES))
        for framework in FRAMEWORKS
        for feature in features_of(framework)
    }
    page = render_page(works)
    if request.config.getoption("--write-features"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run `make features`, and look at what changed"
