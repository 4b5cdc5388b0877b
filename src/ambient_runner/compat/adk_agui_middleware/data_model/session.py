"""The key of an ADK session."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = ["SessionParameter"]


class SessionParameter(BaseModel):
    """The key of a session in ADK's session service."""

    app_name: str
    user_id: str
    session_id: str
