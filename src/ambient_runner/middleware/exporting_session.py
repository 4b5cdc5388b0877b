"""How one batch is posted: to the address that was named and to no other, and with a bound for what is read of the answer.

The status says all that matters. The rest of an answer is read only so that the connection can be used again, and not for long.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import requests
from urllib3.exceptions import HTTPError

__all__ = ["WarySession"]

_LONGEST_ANSWER = 4096
_MOVED = " It answers with a redirect, which is not followed: the key would go along. Correct its address."


class WarySession(requests.Session):
    """What the SDK posts with. `trouble` is a sentence about the last answer, where more can be said than that it was no."""

    def __init__(self, seconds: float) -> None:
        """`seconds` are for one answer, from the request to its end."""
        super().__init__()
        self.trouble = ""
        self._seconds = seconds

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: `requests` would go there, and read all of this answer before."""
        return

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Raises: requests.TooManyRedirects for the first; it would pass as a success."""
        end = time.monotonic() + self._seconds
        answer = super().send(request, **(options | {"stream": True}))
        with answer, suppress(HTTPError):  # the status was heard
            _finish(answer, end)
        has_moved = 300 <= answer.status_code < 400
        self.trouble = _MOVED if has_moved else ""
        if has_moved:
            raise requests.TooManyRedirects
        return answer


def _finish(answer: requests.Response, end: float) -> None:
    """Byte by byte: asked for more, it would wait until so many have come."""
    for _ in range(_LONGEST_ANSWER):
        if time.monotonic() > end or not answer.raw.read(1, decode_content=False):
            return
