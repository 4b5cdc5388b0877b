"""The body of an error response."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, Field

__all__ = ["ErrorModel", "ErrorResponseModel"]


class ErrorModel(BaseModel):
    """An error, with the time in seconds since 1970."""

    error: str
    error_description: dict[str, Any] | str
    timestamp: int = Field(default_factory=lambda: int(time.time()))
    trace_id: str = ""


class ErrorResponseModel(BaseModel):
    """An error as FastAPI sends it."""

    detail: ErrorModel
