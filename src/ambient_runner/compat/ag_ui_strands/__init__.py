"""The public names of the package `ag_ui_strands` 1.0, on our own bridge. Change the import, and an app runs here.

`docs/how-to/migrate.md` lists what differs, and why.
"""

from __future__ import annotations

from ag_ui.core import Interrupt, ResumeEntry, RunFinishedInterruptOutcome, RunFinishedSuccessOutcome

from ambient_runner.compat.ag_ui_strands.a2ui_tool import (
    A2UI_OPERATIONS_KEY,
    A2UI_STREAM_KEY,
    BASIC_CATALOG_ID,
    A2UIGuidelines,
    A2UIToolParams,
    get_a2ui_tools,
    is_auto_injected_a2ui_tool,
    plan_a2ui_injection,
)
from ambient_runner.compat.ag_ui_strands.agent import INTERRUPT_CANCELLED, StrandsAgent
from ambient_runner.compat.ag_ui_strands.citations import CITATIONS_METADATA_KEY
from ambient_runner.compat.ag_ui_strands.client_proxy_tool import create_proxy_tool, sync_proxy_tools
from ambient_runner.compat.ag_ui_strands.config import (
    PredictStateMapping,
    SessionManagerProvider,
    StrandsAgentConfig,
    TemplateToolsProvider,
    ToolBehavior,
    ToolCallContext,
    ToolResultContext,
    ToolStreamEventContext,
    ToolStreamEventHandler,
)
from ambient_runner.compat.ag_ui_strands.endpoint import add_ping, add_strands_fastapi_endpoint
from ambient_runner.compat.ag_ui_strands.template_tools import (
    EXEMPT_EVERY_TEMPLATE_TOOL,
    TemplateToolsSelectionError,
    sync_template_tools,
)
from ambient_runner.compat.ag_ui_strands.utils import (
    DEFAULT_URL_FETCH_POLICY,
    InvocationStateProvider,
    UrlFetchPolicy,
    UrlFetchPolicyError,
    create_strands_app,
)

__all__ = [
    "A2UI_OPERATIONS_KEY",
    "A2UI_STREAM_KEY",
    "BASIC_CATALOG_ID",
    "CITATIONS_METADATA_KEY",
    "DEFAULT_URL_FETCH_POLICY",
    "EXEMPT_EVERY_TEMPLATE_TOOL",
    "INTERRUPT_CANCELLED",
    "A2UIGuidelines",
    "A2UIToolParams",
    "Interrupt",
    "InvocationStateProvider",
    "PredictStateMapping",
    "ResumeEntry",
    "RunFinishedInterruptOutcome",
    "RunFinishedSuccessOutcome",
    "SessionManagerProvider",
    "StrandsAgent",
    "StrandsAgentConfig",
    "TemplateToolsProvider",
    "TemplateToolsSelectionError",
    "ToolBehavior",
    "ToolCallContext",
    "ToolResultContext",
    "ToolStreamEventContext",
    "ToolStreamEventHandler",
    "UrlFetchPolicy",
    "UrlFetchPolicyError",
    "add_ping",
    "add_strands_fastapi_endpoint",
    "create_proxy_tool",
    "create_strands_app",
    "get_a2ui_tools",
    "is_auto_injected_a2ui_tool",
    "plan_a2ui_injection",
    "sync_proxy_tools",
    "sync_template_tools",
]
