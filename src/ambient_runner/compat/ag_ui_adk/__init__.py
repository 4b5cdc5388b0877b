"""The public names of the package `ag_ui_adk` 0.11, on this package's ADK bridge: change the import and nothing else.

`docs/how-to/migrate.md` lists what differs and why.
"""

from ambient_runner.errors import optional_dependency

with optional_dependency("google.adk", "google.genai", install="ambient-runner[adk]"):
    from ambient_runner.compat.ag_ui_adk.a2ui_tool import (
        A2UISubAgentTool,
        get_a2ui_tool,
        is_auto_injected_a2ui_tool,
        plan_a2ui_injection,
    )
    from ambient_runner.compat.ag_ui_adk.adk_agent import ADKAgent
    from ambient_runner.compat.ag_ui_adk.agui_toolset import AGUIToolset
    from ambient_runner.compat.ag_ui_adk.config import PredictStateMapping, normalize_predict_state
    from ambient_runner.compat.ag_ui_adk.endpoint import (
        AgentResolver,
        add_adk_fastapi_endpoint,
        create_adk_app,
        resolve_agent_from_message_history,
    )
    from ambient_runner.compat.ag_ui_adk.event_translator import EventTranslator, adk_events_to_messages
    from ambient_runner.compat.ag_ui_adk.session_manager import (
        CONTEXT_STATE_KEY,
        INVOCATION_ID_STATE_KEY,
        SessionManager,
    )

__all__ = [
    "CONTEXT_STATE_KEY",
    "INVOCATION_ID_STATE_KEY",
    "A2UISubAgentTool",
    "ADKAgent",
    "AGUIToolset",
    "AgentResolver",
    "EventTranslator",
    "PredictStateMapping",
    "SessionManager",
    "add_adk_fastapi_endpoint",
    "adk_events_to_messages",
    "create_adk_app",
    "get_a2ui_tool",
    "is_auto_injected_a2ui_tool",
    "normalize_predict_state",
    "plan_a2ui_injection",
    "resolve_agent_from_message_history",
]
