"""SSEService with the signature and the methods of the package."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ambient_runner import adk
from ambient_runner.adk import InputInfo, RunnerConfig, raise_http_errors
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.compat.adk_agui_middleware.base_abc.sse_service import BaseSSEService
from ambient_runner.compat.adk_agui_middleware.service.service_registry import add_service
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ag_ui.core import BaseEvent, RunAgentInput
    from fastapi import Request, Response
    from google.adk.agents import BaseAgent
    from google.adk.apps import App
    from google.adk.workflow import BaseNode

    from ambient_runner.adk import ConfigContext, HandlerContext
    from ambient_runner.config import Settings
    from ambient_runner.runs.run import Middleware
    from ambient_runner.server.guard import Authorize

__all__ = ["SSEService"]


class SSEService(adk.SSEService, BaseSSEService):
    """One ADK agent, ready to be served. The `extract_` methods may be overridden.

    The keyword arguments after `handler_context` are those of `ambient_runner.adk.SSEService`.
    Raises: ConfigError.
    """

    cors = "auto"

    def __init__(
        self,
        agent: BaseAgent | App | BaseNode,
        config_context: ConfigContext | RunnerConfig | None = None,
        runner_config: RunnerConfig | ConfigContext | None = None,
        handler_context: HandlerContext | None = None,
        *,
        settings: Settings | None = None,
        middleware: Sequence[Middleware] = (),
        authorize: Authorize | None = None,
    ) -> None:
        context, config = adk.sort_configs(config_context, runner_config)
        if context is None:
            raise ConfigError("SSEService needs a config_context: ConfigContext(user_id=…).")
        self.agent = agent
        self.config_context = context
        self.runner_config = config or RunnerConfig()
        self.apps: list[Any] = []
        """The apps and routers that serve it."""
        super().__init__(
            agent,
            self.runner_config,
            self._own_extractors(context),
            handler_context,
            settings=settings,
            middleware=middleware,
            authorize=authorize,
        )
        add_service(self)

    async def extract_app_name(self, agui_content: RunAgentInput, request: Request) -> str:
        return await _extract_value(self.config_context.app_name, agui_content, request)

    async def extract_user_id(self, agui_content: RunAgentInput, request: Request) -> str:
        return await _extract_value(self.config_context.user_id, agui_content, request)

    async def extract_session_id(self, agui_content: RunAgentInput, request: Request) -> str:
        return await _extract_value(self.config_context.session_id or agui_content.thread_id, agui_content, request)

    async def extract_initial_state(self, agui_content: RunAgentInput, request: Request) -> dict[str, Any] | None:
        return await _extract_value(self.config_context.extract_initial_state, agui_content, request)

    async def get_runner(
        self, agui_content: RunAgentInput, request: Request
    ) -> tuple[Callable[[], AsyncGenerator[BaseEvent, None]], InputInfo, None]:
        """Return the arguments of `event_generator`. The run starts there, so the first one cannot be called."""
        info = InputInfo(
            agui_content=agui_content,
            request=request,
            app_name=await self.extract_app_name(agui_content, request),
            user_id=await self.extract_user_id(agui_content, request),
            session_id=await self.extract_session_id(agui_content, request),
        )
        return _refuse_direct_run, info, None

    async def event_generator(
        self, runner: Callable[[], AsyncGenerator[BaseEvent, None]], input_info: InputInfo, inout_handler: Any = None
    ) -> Response:
        """Start the run of a request and return its stream. Raises: HTTPException."""
        body = input_info.agui_content.model_dump_json(by_alias=True, exclude_none=True)
        with raise_http_errors():
            return await self.endpoints.start_run_from(input_info.request, body.encode())

    def _own_extractors(self, context: ConfigContext) -> ConfigContext:
        """Return the configuration with the methods of this service. A fixed user stays fixed: it identifies no client."""
        is_fixed = isinstance(context.user_id, str) and type(self).extract_user_id is SSEService.extract_user_id
        return dataclasses.replace(
            context,
            app_name=self.extract_app_name,
            user_id=context.user_id if is_fixed else self.extract_user_id,
            session_id=self.extract_session_id,
            extract_initial_state=self.extract_initial_state,
        )


async def _extract_value(source: Any, agui_content: RunAgentInput, request: Request) -> Any:
    return await call_hook(source, agui_content, request) if callable(source) else source


def _refuse_direct_run() -> AsyncGenerator[BaseEvent, None]:
    raise NotImplementedError("Pass the result of get_runner to event_generator: the run starts there.")
