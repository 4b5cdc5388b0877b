"""The names of `ag_ui_strands.config`: our configuration, with the defaults of that package."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from ambient_runner.bridges.strands import config as own
from ambient_runner.bridges.strands.config import (
    ArgsStreamer,
    CustomResultHandler,
    PredictStateMapping,
    SessionManagerProvider,
    StateContextBuilder,
    StateFromArgs,
    StateFromResult,
    TemplateToolsProvider,
    ThreadAgentKwargsProvider,
    ToolBehavior,
    ToolCallContext,
    ToolResultContext,
    ToolStreamEventContext,
    ToolStreamEventHandler,
    maybe_await,
    normalize_predict_state,
)
from ambient_runner.bridges.strands.url_fetch import DEFAULT_URL_FETCH_POLICY, UrlFetchPolicy

__all__ = [
    "ArgsStreamer",
    "CustomResultHandler",
    "PredictStateMapping",
    "SessionManagerProvider",
    "StateContextBuilder",
    "StateFromArgs",
    "StateFromResult",
    "StatePayload",
    "StrandsAgentConfig",
    "TemplateToolsProvider",
    "ThreadAgentKwargsProvider",
    "ToolBehavior",
    "ToolCallContext",
    "ToolResultContext",
    "ToolStreamEventContext",
    "ToolStreamEventHandler",
    "UrlFetchPolicy",
    "maybe_await",
    "normalize_predict_state",
]

logger = logging.getLogger(__name__)

StatePayload = dict[str, Any]


@dataclass
class StrandsAgentConfig(own.StrandsAgentConfig):
    """Configuration of a Strands agent. URLs of attachments are fetched by default, and audio is not passed to the model."""

    audio_input_supported: bool = False
    wrap_interrupt_answer: bool = True
    a2ui: dict[str, Any] | None = None
    """Has no effect: A2UI is not supported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.url_fetch_policy = self.url_fetch_policy or DEFAULT_URL_FETCH_POLICY
        if self.a2ui is not None:
            logger.warning(
                "StrandsAgentConfig(a2ui=…) has no effect: A2UI is not supported. Give the agent a tool for it."
            )
