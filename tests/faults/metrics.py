"""The metrics of a server."""

from __future__ import annotations

import httpx

from tests.machine_speed import HANG_SECONDS

__all__ = ["read_metric", "read_metrics"]


async def read_metrics(url: str) -> dict[str, float]:
    """Return the values by their names, which include the labels."""
    async with httpx.AsyncClient(base_url=url, timeout=HANG_SECONDS) as client:
        lines = (await client.get("/metrics")).raise_for_status().text.splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    values = {name: float(value) for name, _, value in pairs}
    assert len(values) == len(pairs), "a metric has two values"
    return values


async def read_metric(url: str, name: str) -> float:
    return (await read_metrics(url))[name]
