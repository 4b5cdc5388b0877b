"""The names, module paths and parameters of `ag_ui_adk` 0.11.0, as measured on the published package."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from ambient_runner.compat import ag_ui_adk
from ambient_runner.compat.ag_ui_adk import ADKAgent, AGUIToolset, PredictStateMapping, SessionManager

PUBLISHED = {
    "ADKAgent",
    "AgentResolver",
    "add_adk_fastapi_endpoint",
    "create_adk_app",
    "resolve_agent_from_message_history",
    "EventTranslator",
    "SessionManager",
    "CONTEXT_STATE_KEY",
    "INVOCATION_ID_STATE_KEY",
    "PredictStateMapping",
    "normalize_predict_state",
    "adk_events_to_messages",
    "AGUIToolset",
    "get_a2ui_tool",
    "A2UISubAgentTool",
    "plan_a2ui_injection",
    "is_auto_injected_a2ui_tool",
}
"""All public names."""

AGENT = """adk_agent app_name session_timeout_seconds app_name_extractor user_id user_id_extractor session_service session_manager
artifact_service memory_service credential_service run_config_factory use_in_memory_services execution_timeout_seconds tool_timeout_seconds
max_concurrent_executions cleanup_interval_seconds max_sessions_per_user delete_session_on_cleanup save_session_to_memory_on_cleanup
hitl_max_wait_seconds predict_state emit_messages_snapshot streaming_function_call_arguments use_thread_id_as_session_id
allow_scoped_state_keys capabilities a2ui emit_interrupt_outcome seed_first_run_history"""
APP = """app user_id user_id_extractor session_service session_manager artifact_service memory_service credential_service run_config_factory
use_in_memory_services plugin_close_timeout execution_timeout_seconds tool_timeout_seconds max_concurrent_executions session_timeout_seconds
cleanup_interval_seconds max_sessions_per_user delete_session_on_cleanup save_session_to_memory_on_cleanup predict_state
emit_messages_snapshot streaming_function_call_arguments use_thread_id_as_session_id allow_scoped_state_keys capabilities
emit_interrupt_outcome seed_first_run_history"""
ENDPOINT = "path extract_headers extract_state_from_request agent_resolver"
MANAGER = """session_service memory_service session_timeout_seconds cleanup_interval_seconds max_sessions_per_user
delete_session_on_cleanup save_session_to_memory_on_cleanup use_thread_id_as_session_id hitl_max_wait_seconds"""
TRANSLATOR = """predict_state client_emitted_tool_call_ids client_tool_names is_resumable streaming_function_call_arguments
output_schema_agent_names"""


def _positional(function: Any) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]


def test_every_published_name_is_exported() -> None:
    assert set(ag_ui_adk.__all__) == PUBLISHED


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (ADKAgent, AGENT),
        (ADKAgent.from_app, APP),
        (ag_ui_adk.add_adk_fastapi_endpoint, f"app agent {ENDPOINT}"),
        (ag_ui_adk.create_adk_app, f"agent {ENDPOINT}"),
        (SessionManager, MANAGER),
        (ag_ui_adk.EventTranslator, TRANSLATOR),
        (PredictStateMapping, "state_key tool tool_argument emit_confirm_tool stream_tool_call"),
    ],
)
def test_the_parameters_and_their_order_are_the_published_ones(function: Any, names: str) -> None:
    assert _positional(function) == names.split()


def test_a_toolset_takes_keywords_only() -> None:
    parameters = inspect.signature(AGUIToolset).parameters.values()
    assert {(parameter.name, parameter.kind) for parameter in parameters} == {
        ("tool_filter", inspect.Parameter.KEYWORD_ONLY),
        ("tool_name_prefix", inspect.Parameter.KEYWORD_ONLY),
    }


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("a2ui_tool", "get_a2ui_tool"),
        ("adk_agent", "ADKAgent"),
        ("agui_toolset", "AGUIToolset"),
        ("config", "PredictStateMapping"),
        ("endpoint", "make_extract_headers"),
        ("event_translator", "adk_events_to_messages"),
        ("session_manager", "CONTEXT_STATE_KEY"),
    ],
)
def test_names_are_where_the_published_package_has_them(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"ambient_runner.compat.ag_ui_adk.{module}"), name)
