"""Options that a run can change in a running session: its mode, its model and its config options."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.acp.errors import ACPError
from ambient_runner.bridges.acp.modes import agent_mode, is_widened, is_wider, parse_mode
from ambient_runner.bridges.acp.run_input import requested_options
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.config import ACPConfig
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.modes import AgentMode, Mode
    from ambient_runner.bridges.acp.session_state import SessionState
    from ambient_runner.bridges.toolkit.run_context import RunContext

__all__ = [
    "SessionOptions",
    "apply_options",
    "build_options",
    "option_values",
]

logger = logging.getLogger(__name__)

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionOptions:
    """The options of one run."""

    mode: Mode
    agent_mode: AgentMode
    model: str = ""
    config: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"])
    asks: bool = False
    """True if the agent asks about as much as it can, whatever the mode: there are rules to apply."""

    @property
    def widest_mode(self) -> Mode:
        """The widest mode that the agent itself may be in."""
        return "default" if self.asks and is_wider(self.mode, "default") else self.mode


def build_options(config: ACPConfig, context: RunContext, default_model: str, *, asks: bool) -> SessionOptions:
    """Return the options of a run: those of the settings, and what the client may change of them.

    `asks`: the agent asks about as much as it can, because there are rules that restrict it.
    """
    requested = requested_options(context.run_input)
    mode = _requested_mode(config.mode, requested.get("mode"), context)
    return SessionOptions(
        mode=mode,
        agent_mode=agent_mode(config.profile, mode, asks=asks),
        asks=asks,
        model=_requested_model(config, requested.get("model"), context) or config.model or default_model,
        config={**config.options, **_requested_options(config, requested.get("options"), context)},
    )


async def apply_options(session_id: str, state: SessionState, launch: Launch, call: Call) -> None:
    """Set what differs from the session's current state. What the agent does not offer is left as it is.

    Raises: BridgeError, also if the agent stays in a wider mode than it may be in.
    """
    options, profile = launch.options, launch.profile
    await _apply_mode(session_id, state, options.agent_mode, call)
    if options.model and options.model != state.model_id:
        await _apply_model(session_id, state, options.model, call)
    mode_option = as_object(state.find_option("mode")).get("id") if options.agent_mode.mode_id else None
    for name, value in {**options.config, **options.agent_mode.options}.items():
        if name != mode_option and _has_option(state, name, value):
            await _set_option(session_id, state, name, value, call)
    if state.mode_id and is_widened(profile.name, options.widest_mode, state.mode_id, option_values(state.value)):
        raise ACPError(f"{profile.title} does not offer a permission mode for {options.mode!r}. Choose another `mode`.")


def option_values(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the current values of the config options in an update or a session's state, by id."""
    options = settings.get("configOptions")
    items = [as_object(option) for option in cast("list[Any]", options)] if isinstance(options, list) else []
    return {
        str(item["id"]): item["currentValue"]
        for item in items
        if "id" in item and isinstance(item.get("currentValue"), str)
    }


async def _apply_mode(session_id: str, state: SessionState, mode: AgentMode, call: Call) -> None:
    wanted = mode.mode_id
    if not wanted or state.mode_id == wanted:
        return
    option = state.find_option("mode")
    if wanted in state.mode_ids:
        await call("session/set_mode", {"sessionId": session_id, "modeId": wanted})
        state.set_mode(wanted)
    elif option is not None and _has_option(state, str(option.get("id")), wanted):
        await _set_option(session_id, state, str(option["id"]), wanted, call)
    else:
        logger.warning("The agent does not offer the mode %r; it stays in %r.", wanted, state.mode_id)


async def _apply_model(session_id: str, state: SessionState, model: str, call: Call) -> None:
    option = state.find_option("model")
    if option is not None and isinstance(option.get("id"), str):
        await _set_option(session_id, state, option["id"], model, call)
    elif as_object(state.value.get("models")):
        await call("session/set_model", {"sessionId": session_id, "modelId": model})
        state.apply_session({"models": {**as_object(state.value.get("models")), "currentModelId": model}})


async def _set_option(session_id: str, state: SessionState, name: str, value: str | bool, call: Call) -> None:
    changed = await call("session/set_config_option", {"sessionId": session_id, "configId": name, "value": value})
    state.apply_session(as_object(changed))


def _has_option(state: SessionState, name: str, value: object) -> bool:
    """Return True if the session has this option and it has another value."""
    options = cast("list[Any]", state.value.get("configOptions") or [])
    found = next((option for option in map(as_object, options) if option.get("id") == name), None)
    return found is not None and found.get("currentValue") != value


def _requested_mode(configured: Mode, requested: Any, context: RunContext) -> Mode:
    """Return the mode that the client asks for, unless it is wider than the configured one."""
    if requested is None:
        return configured
    try:
        mode = parse_mode(requested)
    except ConfigError:
        mode = None
    if mode is None or is_wider(mode, configured):
        _log_refusal("mode", context)
        return configured
    return mode


def _requested_model(config: ACPConfig, requested: Any, context: RunContext) -> str:
    if requested is None:
        return ""
    if not isinstance(requested, str) or not config.allows_model(requested):
        _log_refusal("model", context)
        return ""
    return requested


def _requested_options(config: ACPConfig, requested: Any, context: RunContext) -> dict[str, str | bool]:
    values = as_object(requested)
    allowed = {
        name: value for name, value in values.items() if name in config.client_options and isinstance(value, str | bool)
    }
    if len(allowed) < len(values):
        _log_refusal("options", context)
    return allowed


def _log_refusal(name: str, context: RunContext) -> None:
    logger.warning(
        "Run %s on thread %s: `forwardedProps.acp.%s` asks for what the settings do not allow; the configured value is used.",
        context.run_input.run_id,
        context.run_input.thread_id,
        name,
    )
