"""Building blocks of bridges, public for authors of their own (docs/how-to/bridge.md). Importing it imports no framework.

Every bridge of this project is built with them. A name that is exported here is a promise; modules and names that are not exported may
change.
"""

from ambient_runner.bridges.toolkit.adapter_run import AdapterRun, stream_run
from ambient_runner.bridges.toolkit.callbacks import (
    accepts_argument,
    call_hook,
    hook_error,
    required_parameters,
    stream_hook,
    try_hook,
    try_stream,
)
from ambient_runner.bridges.toolkit.composer import Composer, random_id
from ambient_runner.bridges.toolkit.content import attachment_placeholder, context_text
from ambient_runner.bridges.toolkit.interrupts import (
    DECLINED,
    approval_schema,
    cancelled_answer,
    expires_at,
    has_same_arguments,
    interrupt_lapsed_events,
    is_approved,
    record_arguments,
    resolved_interrupt_ids,
)
from ambient_runner.bridges.toolkit.json_values import (
    as_object,
    parse_json_or_text,
    to_json_text,
    to_jsonable,
    to_jsonable_or_type_name,
)
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.bridges.toolkit.tool_schemas import TOOL_NAME, Toolbox, callable_tools, clean_schema
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool, declare_tool
from ambient_runner.bridges.toolkit.turns import (
    EMPTY_RESULT,
    MISSING_RESULT,
    AssistantTurn,
    NewInput,
    ResultsTurn,
    SystemTurn,
    Turn,
    TurnToolCall,
    TurnToolResult,
    UserTurn,
    collect_tool_calls,
    find_new_input,
    missing_result,
    result_from_message,
    to_turns,
    unanswered_tool_calls,
)
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.bridges.toolkit.worker_threads import iterate_in_thread
from ambient_runner.errors import BridgeError, BridgeTimeout, BridgeUnavailable, ConfigError, optional_dependency
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.events import Event, Interrupt, ResumeEntry, RunAgentInput, Tool

__all__ = [
    "DECLINED",
    "EMPTY_RESULT",
    "MISSING_RESULT",
    "TOOL_NAME",
    "AdapterRun",
    "AssistantTurn",
    "BridgeError",
    "BridgeTimeout",
    "BridgeUnavailable",
    "Composer",
    "ConfigError",
    "Event",
    "Interrupt",
    "NewInput",
    "PredictStateMapping",
    "ResultsTurn",
    "ResumeEntry",
    "RunAgentInput",
    "StateStore",
    "SystemTurn",
    "Tool",
    "Toolbox",
    "Turn",
    "TurnToolCall",
    "TurnToolResult",
    "Usage",
    "UserTurn",
    "accepts_argument",
    "allocate_tool_call_id",
    "approval_schema",
    "as_object",
    "attachment_placeholder",
    "call_hook",
    "callable_tools",
    "cancelled_answer",
    "clean_schema",
    "collect_tool_calls",
    "context_text",
    "declare_mcp_tool",
    "declare_tool",
    "expires_at",
    "find_new_input",
    "has_same_arguments",
    "hook_error",
    "input_from_agui",
    "interrupt_lapsed_events",
    "is_approved",
    "iterate_in_thread",
    "memory_events",
    "missing_result",
    "optional_dependency",
    "parse_json_or_text",
    "random_id",
    "record_arguments",
    "required_parameters",
    "resolved_interrupt_ids",
    "result_from_message",
    "stream_hook",
    "stream_run",
    "to_json_text",
    "to_jsonable",
    "to_jsonable_or_type_name",
    "to_turns",
    "try_hook",
    "try_stream",
    "unanswered_tool_calls",
]
