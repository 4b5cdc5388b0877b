"""The largest body of each route, as the reference says it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ambient_runner.protocol.strict_json import MAX_VALUES
from tests.server.worker import WorkerBridge
from tests.services.world import server, settings_of

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}
ROW = re.compile(r"^\| body of ([^|]+) \| (\d+) (KiB|MiB)\b[^|]* \| 413 `too_large` \|$", re.MULTILINE)
ROUTE = re.compile(r"`(POST|PATCH) ([^`]+)`")
LIMITS = {
    route: int(number) * UNITS[unit]
    for routes, number, unit in ROW.findall(REFERENCE)
    for route in ROUTE.findall(routes)
}
WITHOUT_JSON = {("POST", "/files"), ("POST", "/copilotkit/threads/{id}/archive")}


def test_every_route_with_a_json_body_has_a_limit_in_the_reference() -> None:
    found = re.findall(r"`(POST|PATCH) (/[^`?]*)", REFERENCE)
    documented = {(method, path.rstrip("/") or "/") for method, path in found}
    assert {route for route in documented if route not in LIMITS} - WITHOUT_JSON == set()


@pytest.mark.parametrize("route", LIMITS, ids=" ".join)
async def test_a_body_has_the_size_that_the_reference_says(tmp_path: Path, route: tuple[str, str]) -> None:
    method, path = route
    address = path.format(name="worker", agent="worker", id="t")
    headers = {"content-type": "application/json-patch+json" if "/state/" in path else "application/json"}
    statuses: list[int] = []
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        for size in (LIMITS[route], LIMITS[route] + 1):
            answer = await client.request(method, address, content=b" " * size, headers=headers)
            statuses.append(answer.status_code)
    assert statuses[0] not in {404, 405, 413, 415}
    assert statuses[1] == 413


MANY_VALUES = b'{"unknown":[' + b"1," * MAX_VALUES + b"1]}"


@pytest.mark.parametrize("route", [each for each in LIMITS if LIMITS[each] > len(MANY_VALUES)], ids=" ".join)
async def test_m9_a_body_has_as_many_values_as_the_reference_says(tmp_path: Path, route: tuple[str, str]) -> None:
    """`POST /feedback` decoded the members that it knows, and counted no values in the others."""
    method, path = route
    address = path.format(name="worker", agent="worker", id="t")
    headers = {"content-type": "application/json-patch+json" if "/state/" in path else "application/json"}
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        answer = await client.request(method, address, content=MANY_VALUES, headers=headers)
    assert answer.status_code == 413
