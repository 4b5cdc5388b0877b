"""The launch of a CLI process for a run: its options, variables and tools. Pure.

A running process serves another run only if both have the same launch.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import ClaudeAgentOptions

from ambient_runner.bridges.claude.client_tools import SERVER_NAME, TOOL_PREFIX, normalize_name, offered_tools
from ambient_runner.bridges.claude.state_tool import STATE_TOOL
from ambient_runner.bridges.toolkit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claude_agent_sdk import SdkMcpTool
    from claude_agent_sdk.types import SystemPromptPreset

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.memory import SessionPosition
    from ambient_runner.config import PermissionRule
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.protocol.events import RunAgentInput, Tool

__all__ = ["Launch", "build_launch", "options_at"]

logger = logging.getLogger(__name__)

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,127}")
_MAX_LOGGED_NAME = 128
"""Characters of a model's name that the log repeats."""
_DAY_MS = 24 * 3600 * 1000

_CLI_VARIABLES = {
    # No activity between runs, and no network traffic except requests to the model.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The CLI stores notes per directory, so two threads in one directory would read each other's.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # The model sees the client's tools from the start, and their calls wait for a person.
    "ENABLE_TOOL_SEARCH": "false",
    "MCP_TOOL_TIMEOUT": str(_DAY_MS),
    "CLAUDE_CODE_SDK_MCP_TOOL_IDLE_TIMEOUT": str(_DAY_MS),
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything that distinguishes one process from another. Processes with equal launches are interchangeable."""

    options: ClaudeAgentOptions
    environment: Mapping[str, str] = field(repr=False)
    client_tools: tuple[Tool, ...] = ()
    custom: tuple[SdkMcpTool[Any], ...] = ()
    has_state_tool: bool = False
    permissions: tuple[PermissionRule, ...] = ()

    @property
    def has_tool_server(self) -> bool:
        """True if the process has tools besides the CLI's own."""
        return bool(self.custom or self.client_tools or self.has_state_tool)

    @property
    def in_process_servers(self) -> dict[str, Any]:
        """The MCP servers of the options that run in this process (`create_sdk_mcp_server`)."""
        servers = as_object(self.options.mcp_servers)
        return {name: server for name, server in servers.items() if as_object(server).get("type") == "sdk"}

    def secret_values(self, secrets: Secrets) -> list[str]:
        """Return the values of variables that contain a known secret."""
        return [value for value in self.environment.values() if secrets.contains_secret(value)]


def build_launch(
    config: ClaudeConfig,
    ctx: PlatformContext,
    run_input: RunAgentInput,
    base: Mapping[str, str],
    granted: Mapping[str, str],
) -> Launch:
    """Return the launch that this run needs. `base` holds variables for every process, `granted` those of this run only."""
    custom = tuple(cast("list[SdkMcpTool[Any]]", ctx.custom_tools))
    directory = ctx.cwd_path or ctx.workspace_path
    own = config.options or ClaudeAgentOptions()
    options = replace(
        own,
        cwd=directory or None,
        add_dirs=[*own.add_dirs, *ctx.add_dirs],
        model=_requested_model(config, run_input) or ctx.model or own.model,
        system_prompt=_system_prompt(ctx),
        permission_mode=config.permission_mode,
        tools=own.tools if config.tools is None else list(config.tools),
        allowed_tools=[*own.allowed_tools, *config.allowed_tools, TOOL_PREFIX.removesuffix("__")],
        disallowed_tools=[*own.disallowed_tools, *config.disallowed_tools],
        setting_sources=list(config.setting_sources),
        mcp_servers=_foreign_servers({**as_object(own.mcp_servers), **ctx.mcp_servers}, ctx.session_id),
        strict_mcp_config=True,
        cli_path=config.cli_path or own.cli_path,
        include_partial_messages=True,
        forward_subagent_text=True,
        verbatim_prompts=config.verbatim,
        extra_args=_extra_args(config, own),
    )
    return Launch(
        options=options,
        environment={
            **_CLI_VARIABLES,
            **base,
            **_sampling_variables(ctx),
            **own.env,
            **config.env,
            **granted,
            **_pwd_variable(directory),
        },
        client_tools=tuple(offered_tools(run_input.tools, custom)),
        custom=custom,
        has_state_tool=_offers_state_tool(config, run_input, custom),
        permissions=tuple(ctx.permissions),
    )


def _system_prompt(ctx: PlatformContext) -> SystemPromptPreset:
    """Return Claude Code's prompt with the platform's. Without `snapshot=False` a conversation keeps its first prompt forever."""
    append = _to_argument(ctx.system_prompt_append)
    return {"type": "preset", "preset": "claude_code", "append": append, "snapshot": False}


def options_at(launch: Launch, position: SessionPosition) -> ClaudeAgentOptions:
    """Return the launch's options for continuing at a position in the CLI's files."""
    return replace(
        launch.options,
        # A continued session keeps its model unless another one is set.
        model=launch.options.model or ("default" if position.session else None),
        resume=position.session,
        resume_session_at=position.entry,
        permission_prompt_tool_name="stdio",
        mcp_servers={
            **as_object(launch.options.mcp_servers),
            **({SERVER_NAME: {"type": "sdk", "name": SERVER_NAME}} if launch.has_tool_server else {}),
        },
    )


def _offers_state_tool(config: ClaudeConfig, run_input: RunAgentInput, custom: tuple[SdkMcpTool[Any], ...]) -> bool:
    """Return True if Claude can change the shared state. A tool of the developer with the same name is used instead."""
    if any(tool.name == STATE_TOOL for tool in custom):
        return False
    return config.state_tool == "always" or (config.state_tool == "shared" and bool(run_input.state))


def _foreign_servers(servers: dict[str, Any], thread_id: str) -> dict[str, Any]:
    """Return the servers whose tools cannot be mistaken for ours, which need no permission. The log names the rest."""
    reserved = [name for name in servers if f"{normalize_name(name)}__".startswith(f"{SERVER_NAME}__")]
    if reserved:
        logger.warning(
            "Thread %s: MCP servers were left out: %r. The name %r is reserved; rename them.",
            thread_id,
            reserved,
            SERVER_NAME,
        )
    return {name: config for name, config in servers.items() if name not in reserved}


def _requested_model(config: ClaudeConfig, run_input: RunAgentInput) -> str | None:
    """Return the model the client asks for, if it may."""
    model: Any = as_object(run_input.forwarded_props).get("model")
    if not isinstance(model, str) or not model:
        return None
    if not _MODEL_NAME.fullmatch(model) or not config.allows_model(model):
        logger.warning(
            "Run %s on thread %s requests the model %r, which `models` does not list; the default model is used.",
            run_input.run_id,
            run_input.thread_id,
            model[:_MAX_LOGGED_NAME],
        )
        return None
    return model


def _sampling_variables(ctx: PlatformContext) -> dict[str, str]:
    """Return the variables for settings that are not options of the CLI."""
    variables: dict[str, str] = {}
    if ctx.max_tokens is not None:
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(ctx.max_tokens)
    if ctx.temperature is not None:
        variables["CLAUDE_CODE_EXTRA_BODY"] = json.dumps({"temperature": ctx.temperature})
    return variables


def _extra_args(config: ClaudeConfig, own: ClaudeAgentOptions) -> dict[str, str | None]:
    """Return the extra arguments. Newer models hide their reasoning unless a summary is requested; another CLI may not know that option."""
    if own.thinking is not None or own.cli_path is not None or config.cli_path is not None:
        return own.extra_args
    return {"thinking-display": "summarized", **own.extra_args}


def _to_argument(text: str) -> str:
    """Return the text without what a command line cannot hold: NUL and lone surrogates."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _pwd_variable(directory: str) -> dict[str, str]:
    return {"PWD": str(Path(directory))} if directory else {}
