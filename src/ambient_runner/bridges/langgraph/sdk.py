"""Names of LangGraph that are not documented, or that not every supported version has."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.sdk import Sdk

SDK = Sdk(package="langgraph", lowest="1.1.10", newest="1.2.20")

with SDK.private_names():
    from langgraph.channels.binop import BinaryOperatorAggregate  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.checkpoint.serde.types import RESUME
    from langgraph.managed.base import ManagedValue  # pyright: ignore[reportMissingTypeStubs]

PULL = "__pregel_pull"
"""Begins the path of a task whose input is read from the state."""

_reducers: list[type[Any]] = [BinaryOperatorAggregate]
with suppress(ModuleNotFoundError):  # before 1.2
    from langgraph.channels.delta import DeltaChannel  # pyright: ignore[reportMissingTypeStubs]

    _reducers.append(DeltaChannel)
REDUCERS = tuple(_reducers)
"""Channels that combine an update with the stored value."""

try:
    from langgraph.errors import is_invalid_resume
except ImportError:  # before 1.2.17 an interrupt has no response schema
    if not TYPE_CHECKING:

        def is_invalid_resume(error: BaseException) -> bool:
            """Return False: the graph itself checks the answer."""
            return False


__all__ = ["PULL", "REDUCERS", "RESUME", "SDK", "BinaryOperatorAggregate", "ManagedValue", "is_invalid_resume"]
