"""How a CLI process is started for a run: with which options, variables and tools. Pure.

A process that is there already serves a run only if it was started just so.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import ClaudeAgentOptions

from ambient_runner.bridges.claude.client_tools import PREFIX, SERVER, callable_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claude_agent_sdk import SdkMcpTool

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.memory import Place
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.protocol.events import RunAgentInput, Tool

__all__ = ["Launch", "launch_of", "options_for"]

logger = logging.getLogger(__name__)

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,127}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
"""What the CLI writes as `_` when it makes the name of a tool from the name of its server."""
_DAY = 24 * 3600 * 1000

_QUIET = {
    # Nothing happens between runs, and nothing but requests to the model leaves by itself.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # The CLI keeps notes by folder, so two threads in one folder would read each other's.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # Tools of the client are shown to the model at once, and wait for a person.
    "ENABLE_TOOL_SEARCH": "false",
    "MCP_TOOL_TIMEOUT": str(_DAY),
    "CLAUDE_CODE_SDK_MCP_TOOL_IDLE_TIMEOUT": str(_DAY),
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything that makes one process different from another. Two that are equal can stand in for each other."""

    options: ClaudeAgentOptions
    environment: Mapping[str, str] = field(repr=False)
    frontend: tuple[Tool, ...] = ()
    custom: tuple[SdkMcpTool[Any], ...] = ()

    def known_to(self, secrets: Secrets) -> list[str]:
        """Those of the variables' values that hold a secret, as far as it is known to be one."""
        return [value for value in self.environment.values() if secrets.in_text(value)]


def launch_of(
    config: ClaudeConfig,
    ctx: PlatformContext,
    given: RunAgentInput,
    base: Mapping[str, str],
    granted: Mapping[str, str],
) -> Launch:
    """What this run needs of a process. `base` are variables for every process, `granted` those of this run alone."""
    custom = tuple(cast("list[SdkMcpTool[Any]]", ctx.custom_tools))
    folder = ctx.cwd_path or ctx.workspace_path
    own = config.options or ClaudeAgentOptions()
    options = replace(
        own,
        cwd=folder or None,
        add_dirs=[*own.add_dirs, *ctx.add_dirs],
        model=_model(config, given) or ctx.model or own.model,
        # Without `snapshot=False` a conversation keeps the prompt it began with, and Claude never hears of a new workflow or file.
        system_prompt={
            "type": "preset",
            "preset": "claude_code",
            "append": _writable(ctx.system_prompt_append),
            "snapshot": False,
        },
        permission_mode=config.permission_mode,
        tools=own.tools if config.tools is None else list(config.tools),
        allowed_tools=[*own.allowed_tools, *config.allowed_tools, PREFIX.removesuffix("__")],
        disallowed_tools=[*own.disallowed_tools, *config.disallowed_tools],
        setting_sources=list(config.setting_sources),
        mcp_servers=_others({**_servers(own.mcp_servers), **ctx.mcp_servers}),
        strict_mcp_config=True,
        cli_path=config.cli_path or own.cli_path,
        include_partial_messages=True,
        forward_subagent_text=True,
        verbatim_prompts=config.verbatim,
        extra_args=_extra_args(config, own),
    )
    return Launch(
        options=options,
        environment={**_QUIET, **base, **_sampling(ctx), **own.env, **config.env, **granted, **_pwd(folder)},
        frontend=tuple(callable_tools(given.tools, custom)),
        custom=custom,
    )


def options_for(launch: Launch, place: Place) -> ClaudeAgentOptions:
    """The launch's options, going on at a place in the CLI's files."""
    return replace(
        launch.options,
        # A session that goes on keeps the model it had, unless it is told otherwise.
        model=launch.options.model or ("default" if place.session else None),
        resume=place.session,
        resume_session_at=place.entry,
        permission_prompt_tool_name="stdio",
        mcp_servers={
            **_servers(launch.options.mcp_servers),
            **({SERVER: {"type": "sdk", "name": SERVER}} if launch.custom or launch.frontend else {}),
        },
    )


def _servers(servers: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}


def _others(servers: dict[str, Any]) -> dict[str, Any]:
    """Servers whose tools cannot be taken for ours, which are used without asking. The log names the rest."""
    ours = [name for name in servers if f"{_UNFIT.sub('_', name)}__".startswith(f"{SERVER}__")]
    if ours:
        logger.warning("MCP servers were left out, since %r is our own; give them other names: %r", SERVER, ours)
    return {name: config for name, config in servers.items() if name not in ours}


def _model(config: ClaudeConfig, given: RunAgentInput) -> str | None:
    """The model the client asks for, where it may."""
    props: Any = given.forwarded_props
    asked: Any = cast("dict[str, Any]", props).get("model") if isinstance(props, dict) else None
    if not isinstance(asked, str) or not asked:
        return None
    if not _MODEL.fullmatch(asked) or (config.models is not None and asked not in config.models):
        logger.warning("A client asked for a model it may not choose; the usual one is used")
        return None
    return asked


def _sampling(ctx: PlatformContext) -> dict[str, str]:
    """The CLI has no options for these, but reads variables."""
    found: dict[str, str] = {}
    if ctx.max_tokens is not None:
        found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(ctx.max_tokens)
    if ctx.temperature is not None:
        found["CLAUDE_CODE_EXTRA_BODY"] = json.dumps({"temperature": ctx.temperature})
    return found


def _extra_args(config: ClaudeConfig, own: ClaudeAgentOptions) -> dict[str, str | None]:
    """Newer models keep their thoughts to themselves unless they are asked for a summary. Another CLI may not know how to ask."""
    if own.thinking is not None or own.cli_path is not None or config.cli_path is not None:
        return own.extra_args
    return {"thinking-display": "summarized", **own.extra_args}


def _writable(text: str) -> str:
    """The text without what no command line takes: NUL, and halves of characters."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _pwd(folder: str) -> dict[str, str]:
    return {"PWD": str(Path(folder))} if folder else {}
