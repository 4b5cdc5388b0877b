"""Base class of services that `register_agui_endpoint` serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ag_ui.core import BaseEvent, RunAgentInput
    from fastapi import Request, Response

    from ambient_runner.compat.adk_agui_middleware.base_abc.handler import BaseInOutHandler
    from ambient_runner.compat.adk_agui_middleware.data_model.common import InputInfo

__all__ = ["BaseSSEService"]


class BaseSSEService(ABC):
    """Starts runs and streams their events."""

    @abstractmethod
    async def get_runner(
        self, agui_content: RunAgentInput, request: Request
    ) -> tuple[Callable[[], AsyncGenerator[BaseEvent, None]], InputInfo, BaseInOutHandler | None]:
        """Return the run of a request, its identity and its recorder: the arguments of `event_generator`."""

    @abstractmethod
    async def event_generator(
        self,
        runner: Callable[[], AsyncGenerator[BaseEvent, None]],
        input_info: InputInfo,
        inout_handler: BaseInOutHandler | None = None,
    ) -> Response:
        """Return the response that streams the run."""
