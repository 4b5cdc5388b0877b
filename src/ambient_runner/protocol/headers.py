"""HTTP headers that both ends of a gateway name: the server, and the bridge that calls another server."""

from __future__ import annotations

__all__ = ["AUDIENCE_HEADER", "ON_DISCONNECT_HEADER", "RUN_HEADER"]

AUDIENCE_HEADER = "X-Ambient-Audience"
"""Of a request that must not start a run for another audience: a gateway would store summaries as the conversation."""
ON_DISCONNECT_HEADER = "X-Ambient-On-Disconnect"
"""Of a request: if the run goes on or stops when its client disconnects."""
RUN_HEADER = "X-Ambient-Run"
"""Of a response: the key of its run."""
