"""State shared by all threads of a LinesBridge: its variables, its secrets, and the number of its processes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.bridges.lines.errors import LinesBusy
from ambient_runner.bridges.toolkit.secret_variables import secret_values
from ambient_runner.config import base_environment, named_environment

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from ambient_runner.bridges.lines.config import LinesConfig

__all__ = ["LinesBridgeState"]


class LinesBridgeState:
    """State of one bridge."""

    def __init__(self, config: LinesConfig) -> None:
        self.config = config
        self.base_variables: Mapping[str, str] = {
            **base_environment(),
            **named_environment(config.pass_env),
            **config.env,
        }
        """Variables of the server for every process."""
        self.secrets = secret_values(self.base_variables)
        """Secrets that every process has."""
        self._process_count = 0

    @contextmanager
    def admit_process(self) -> Generator[None]:
        """Count a process while it runs. Raises: LinesBusy if there are too many."""
        if self._process_count >= self.config.processes:
            raise LinesBusy
        self._process_count += 1
        try:
            yield
        finally:
            self._process_count -= 1
