"""AGUIToolset: the client's tools as a toolset of an agent."""

from __future__ import annotations

from ambient_runner.bridges.adk.client_toolset import ClientToolset

__all__ = ["AGUIToolset"]


class AGUIToolset(ClientToolset):
    """The client's tools as a toolset of an agent. Outside of an `ADKAgent` it is empty."""
