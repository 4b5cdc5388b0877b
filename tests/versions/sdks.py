"""The SDKs and the ends of their version ranges, as `pyproject.toml` declares them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field

from tests.environments import ROOT

TOOLS = (
    "ag-ui-validate[transport]",
    "httpx",
    "hypothesis",
    "jsonpatch",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
)
_PROVIDERS = ("langchain-anthropic", "langchain-google-genai", "langchain-openai")
_NAME_AND_RANGE = re.compile(r"([A-Za-z0-9-]+)>=([0-9.]+),<([0-9.]+)")


@dataclass(frozen=True, kw_only=True)
class SdkRange:
    """An SDK, its declared range of versions, and the tests that have to pass at both ends of it."""

    name: str
    package: str
    extra: str
    lowest: str
    below: str
    tests: tuple[str, ...]
    requirements: tuple[str, ...] = field(default=())

    def ends(self) -> dict[str, str]:
        """Return the requirement of each end by its name."""
        return {
            "lowest": f"{self.package}=={self.lowest}",
            "newest": f"{self.package}>={self.lowest},<{self.below}",
        }


def declared_range(extra: str) -> tuple[str, str, str]:
    """Return package, lowest version and upper bound of an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    match = _NAME_AND_RANGE.fullmatch(project["optional-dependencies"][extra][0])
    assert match is not None, f"The extra {extra} must read `package>=lowest,<next`."
    return match[1], match[2], match[3]


def sdk_ranges() -> list[SdkRange]:
    mcp, lowest_mcp, below_mcp = declared_range("mcp")
    mcp_tests = ("tests/services/mcp",)
    return [
        _bridge_range("adk", "sqlalchemy[asyncio]", "aiosqlite"),
        # Tests of the Claude and LangGraph bridges share helpers with those of Strands.
        _bridge_range("claude", "strands-agents"),
        _bridge_range(
            "langgraph", "langgraph-checkpoint-sqlite", "langchain", *_PROVIDERS, "copilotkit", "strands-agents"
        ),
        _bridge_range("strands", "bedrock-agentcore"),
        SdkRange(name="mcp 1.x", package=mcp, extra="mcp", lowest=lowest_mcp, below="2", tests=mcp_tests),
        SdkRange(name="mcp 2.x", package=mcp, extra="mcp", lowest="2.0.0", below=below_mcp, tests=mcp_tests),
    ]


def _bridge_range(extra: str, *requirements: str) -> SdkRange:
    package, lowest, below = declared_range(extra)
    return SdkRange(
        name=extra,
        package=package,
        extra=extra,
        lowest=lowest,
        below=below,
        tests=(f"tests/bridges/{extra}",),
        requirements=requirements,
    )
