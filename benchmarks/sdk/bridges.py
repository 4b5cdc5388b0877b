"""The same agents behind this server: `ambient serve bench=benchmarks.sdk.bridges:strands`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.bridges.base import PlatformBridge


def strands() -> PlatformBridge:
    from ambient_runner.bridges.strands.bridge import StrandsBridge
    from benchmarks.sdk.strands_agent import build_agent

    return StrandsBridge(build_agent())


def langgraph() -> PlatformBridge:
    from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
    from benchmarks.sdk.langgraph_agent import build_agent

    return LangGraphBridge(build_agent())


def adk() -> PlatformBridge:
    from ambient_runner.bridges.adk.bridge import ADKBridge
    from benchmarks.sdk.adk_agent import build_agent

    return ADKBridge(build_agent())
