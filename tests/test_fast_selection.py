"""What `make test-fast` leaves out is there to be left out."""

from __future__ import annotations

from tests.fast_selection import check_selection


def test_every_file_that_is_left_out_exists() -> None:
    check_selection()
