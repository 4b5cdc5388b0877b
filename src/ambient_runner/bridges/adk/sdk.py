"""Differences between the supported versions of ADK, and the private names of ADK that the bridge reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.sdk import Sdk

if TYPE_CHECKING:
    from google.adk.tools import BaseTool
    from google.genai import types

__all__ = ["SDK", "function_declaration"]

SDK = Sdk(package="google-adk", lowest="2.12.0", newest="2.13.0")


def function_declaration(tool: BaseTool) -> types.FunctionDeclaration | None:
    """Return what a model gets of a tool; None for a tool of the model's provider."""
    return tool._get_declaration()  # pyright: ignore[reportPrivateUsage]
