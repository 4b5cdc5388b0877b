"""Types of `ag_ui_langgraph` that graphs use: the names of events they dispatch, and mappings of predicted state."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypedDict

__all__ = ["CustomEventNames", "LangGraphEventTypes", "PredictStateTool", "SchemaKeys", "State"]


class LangGraphEventTypes(StrEnum):
    """Types of LangGraph's stream events, and the name of the CUSTOM event for an interrupt."""

    OnChainStart = "on_chain_start"
    OnChainStream = "on_chain_stream"
    OnChainEnd = "on_chain_end"
    OnChatModelStart = "on_chat_model_start"
    OnChatModelStream = "on_chat_model_stream"
    OnChatModelEnd = "on_chat_model_end"
    OnToolStart = "on_tool_start"
    OnToolEnd = "on_tool_end"
    OnToolError = "on_tool_error"
    OnCustomEvent = "on_custom_event"
    OnInterrupt = "on_interrupt"


class CustomEventNames(StrEnum):
    """Names of events that a node dispatches with `adispatch_custom_event`. All but `Exit` are sent as something else than CUSTOM."""

    ManuallyEmitMessage = "manually_emit_message"
    ManuallyEmitToolCall = "manually_emit_tool_call"
    ManuallyEmitState = "manually_emit_state"
    Exit = "exit"


State = dict[str, Any]
"""The state of a graph."""


class SchemaKeys(TypedDict, total=False):
    """Keys of a graph's schemas."""

    input: list[str] | None
    output: list[str] | None
    config: list[str] | None
    context: list[str] | None


class PredictStateTool(TypedDict):
    """A tool argument that is shown as state while the model streams it."""

    tool: str
    state_key: str
    tool_argument: str
