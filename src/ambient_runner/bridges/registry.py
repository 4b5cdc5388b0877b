"""Load agents: specs (a registered name, `name=package.module:attribute`, `name=http://host:port/` or `name=acp:command`) and tables.

Built-in bridges and those of other packages are found the same way: by the entry-point group `ambient_runner.bridges`. An agent object of a
framework needs no bridge of the user's: the group `ambient_runner.objects` maps its package to a bridge. Other AG-UI agents are recognized
by their `run`, and AG-UI servers by their URL. `import_string.py` imports the named object.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TypeGuard, cast

from starlette.applications import Starlette

from ambient_runner.bridges.agui import AGUIBridge, is_agui_agent
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, check_agent_name
from ambient_runner.bridges.bridge_options import BridgeOptions
from ambient_runner.bridges.import_string import (
    import_object,
    missing_package_as_config_error,
    suggest_target,
    user_code_errors,
)
from ambient_runner.bridges.toolkit.callbacks import required_parameters
from ambient_runner.config.loader import agent_name, did_you_mean
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.config import AgentSettings

BRIDGE_GROUP = "ambient_runner.bridges"
OBJECT_GROUP = "ambient_runner.objects"
"""Entry points named after a package. Each names the bridge that is called with an object whose class comes from that package."""


_SIMILARITY = 0.6
"""Lowest similarity of two names at which one is suggested for the other."""
_PLUGIN_ADVICE = "Update or uninstall the package that registers it."
_URL_PREFIXES = ("http://", "https://", "remote+http://", "remote+https://")
_COMMAND_PREFIX = "acp:"
"""Begins the command of an agent that speaks the Agent Client Protocol."""


def load_agents(
    agents: Iterable[str | AgentSettings], configured: Sequence[str | AgentSettings] = ()
) -> dict[str, PlatformBridge]:
    """Return the bridges of these specs and tables by agent name, in their order. `configured` is as for `load_agent`.

    Raises: ConfigError as `load_agent` does, and for a duplicate name.
    """
    bridges: dict[str, PlatformBridge] = {}
    for agent in agents:
        name, bridge = load_agent(agent, configured)
        if name in bridges:
            target = agent.rpartition("=")[2] if isinstance(agent, str) else agent.use or agent.bridge
            raise ConfigError(f"Two agents are named {name}. Rename one of them: other={target}")
        bridges[name] = bridge
    return bridges


def load_agent(
    agent: str | AgentSettings, configured: Sequence[str | AgentSettings] = ()
) -> tuple[str, PlatformBridge]:
    """Return the name and the bridge of an agent.

    A spec is the name of one of the `configured` agents, `demo` (or any registered name), `name=registered`,
    `name=package.module:attribute`, `name=URL` or `name=acp:command`. The attribute is a bridge, a subclass of PlatformBridge, an agent of
    a framework that has a bridge, an AG-UI agent, or a function without arguments that returns one of these. The URL is that of another
    AG-UI server, the command that of an agent of the Agent Client Protocol.
    Raises: ConfigError, naming the wrong part of the spec or table.
    """
    agent = next((found for found in configured if agent == agent_name(found)), agent)
    if not isinstance(agent, str):
        return check_agent_name(agent.name), _check_capabilities(agent.name, _load_table(agent))
    name, has_name, target = ("", "", agent) if _is_address(agent) else agent.partition("=")
    target = target.strip() if has_name or not name else name.strip()
    name = name.strip()
    corrected = target if _is_address(target) else suggest_target(target)
    if not has_name and ":" in corrected:
        raise ConfigError(f"{target} needs a name. Write mine={corrected}")
    if corrected != target:
        raise ConfigError(f"{target} is neither package.module:attribute nor a URL. Write {name}={corrected}")
    known = () if has_name else [agent_name(found) for found in configured]
    return check_agent_name(name), _check_capabilities(name, _load_bridge(target, BridgeOptions(), known))


def _check_capabilities(name: str, bridge: PlatformBridge) -> PlatformBridge:
    """Return the bridge if it declares its capabilities. Raises: ConfigError. The server would fail on every request otherwise."""
    kind = type(bridge).__name__
    with user_code_errors(f"The agent {name} cannot be served: capabilities() of {kind} failed"):
        declared = cast("object", bridge.capabilities())
    if not isinstance(declared, FrameworkCapabilities):
        raise ConfigError(
            f"The agent {name} cannot be served: capabilities() of {kind} must return FrameworkCapabilities, "
            f"not {type(declared).__name__}."
        )
    return bridge


def _load_table(agent: AgentSettings) -> PlatformBridge:
    options = BridgeOptions(values=agent.options, source=f"agents.{agent.name} in {agent.source}")
    try:
        return _bridge_from_table(agent, options)
    except ConfigError as error:
        if error.message.startswith(options.source):
            raise
        raise ConfigError(f"{options.source}: {error.message}") from error


def _bridge_from_table(agent: AgentSettings, options: BridgeOptions) -> PlatformBridge:
    """Return the bridge of a table: the bridge that fits the object at `use`, or `bridge`, called with that object if there is one."""
    target = agent.use
    if target and not _is_address(target) and (corrected := suggest_target(target)) != target:
        raise ConfigError(f"{options.source}: use cannot be {target!r}. Write use = {corrected!r}")
    if not agent.bridge and not target:
        for key in agent.options:
            if hint := did_you_mean(key, ["bridge", "use"], _SIMILARITY):
                raise ConfigError(f"{options.source} has an unknown key {key}.{hint}")
        raise ConfigError(
            f'{options.source} has neither bridge nor use. Write bridge = "claude" for a registered bridge, '
            'or use = "package.module:attribute" for an agent of your own.'
        )
    if not agent.bridge:
        if ":" not in target:
            raise ConfigError(
                f"{options.source}: use must be package.module:attribute or a URL. Write bridge = {target!r}"
            )
        return _load_bridge(target, options)
    if not target:
        return _load_bridge(agent.bridge, options)
    factory = _registered_object(agent.bridge, is_table=True)
    if not _is_bridge_class(factory):
        raise ConfigError(f"{options.source}: the bridge {agent.bridge} takes no agent. Remove `use`.")
    return options.create(factory, target if _is_address(target) else import_object(target))


def _load_bridge(target: str, options: BridgeOptions, configured: Sequence[str] = ()) -> PlatformBridge:
    """Return the bridge of a target. `configured` are the agent names that could have been meant instead of a registered name."""
    if _is_url(target):
        return _remote_bridge(target, options)
    if _is_command(target):
        return _command_bridge(target.strip().removeprefix(_COMMAND_PREFIX), options)
    if ":" in target:
        return _bridge_for(target, import_object(target), options)
    return _bridge_for(target, _registered_object(target, configured, is_table=bool(options.source)), options)


def _is_address(target: str) -> bool:
    """Return True if the target is not an object to import."""
    return _is_url(target) or _is_command(target)


def _is_url(target: str) -> bool:
    return target.strip().startswith(_URL_PREFIXES)


def _is_command(target: str) -> bool:
    return target.strip().startswith(_COMMAND_PREFIX)


def _remote_bridge(target: str, options: BridgeOptions) -> PlatformBridge:
    with missing_package_as_config_error():
        from ambient_runner.bridges.remote import RemoteBridge
    return options.create(RemoteBridge, target.removeprefix("remote+"))


def _command_bridge(command: str, options: BridgeOptions) -> PlatformBridge:
    from ambient_runner.bridges.acp.bridge import ACPBridge
    from ambient_runner.bridges.acp.config import parse_command

    return options.create(ACPBridge, "", parse_command(command))


def _registered_object(name: str, configured: Sequence[str] = (), *, is_table: bool) -> object:
    points = entry_points(group=BRIDGE_GROUP)
    known = {point.name for point in points}
    if name not in known:
        missing = "agent or bridge" if configured else "bridge"
        agents = f" Agents in your settings: {', '.join(configured)}." if configured else ""
        own = 'use = "package.module:attribute"' if is_table else "name=package.module:attribute"
        raise ConfigError(
            f"There is no {missing} {name!r}.{did_you_mean(name, [*configured, *known], _SIMILARITY)}{agents} "
            f"Registered bridges: {', '.join(sorted(known)) or 'none'}. For your own agent, write {own}"
        )
    return import_object(find_target(points, name, "a bridge named"), is_installed=True)


def find_target(points: Iterable[EntryPoint], name: str, what: str) -> str:
    """Return the import string of the entry points of this name. Raises: ConfigError if they name different objects."""
    targets = sorted({point.value for point in points if point.name == name})
    if len(targets) > 1:
        raise ConfigError(f"Several packages install {what} {name}: {', '.join(targets)}. Uninstall all but one.")
    return targets[0]


def _bridge_for(target: str, candidate: object, options: BridgeOptions) -> PlatformBridge:
    bridge = _adopt_object(target, candidate, options)
    if bridge is not None:
        return bridge
    if _is_bridge_class(candidate):
        return _create_bridge(target, candidate, options)
    if is_agui_agent(candidate):
        return options.create(AGUIBridge, candidate)
    agent = _call_factory(target, candidate) if _is_factory(candidate) else candidate
    bridge = _adopt_object(target, agent, options)
    if bridge is not None:
        return bridge
    if is_agui_agent(agent):
        return options.create(AGUIBridge, agent)
    if isinstance(agent, AbstractAsyncContextManager):
        raise _async_factory_error(target)
    if isinstance(agent, Starlette):
        raise ConfigError(
            f"{target} is a web app, not an agent. Add your agent to it with add_ambient_endpoints(app, bridge) and run the app itself; "
            "or, if it is an AG-UI server, start it and use its URL: http://127.0.0.1:PORT/"
        )
    raise ConfigError(
        f"{target} is not an agent but {type(agent).__name__}. It must be a PlatformBridge, a subclass of it, an agent of a framework "
        "that has a bridge, an AG-UI agent, or a function without arguments that returns one. "
        "For an agent whose `run(input)` yields AG-UI events, create the bridge yourself: AGUIBridge(agent)."
    )


def _is_bridge_class(candidate: object) -> TypeGuard[type[PlatformBridge]]:
    return isinstance(candidate, type) and issubclass(candidate, PlatformBridge)


def _create_bridge(target: str, factory: type[PlatformBridge], options: BridgeOptions) -> PlatformBridge:
    if options.values:
        return options.create(factory)
    bridge = _call_factory(target, factory)
    assert isinstance(bridge, PlatformBridge)
    return bridge


def _adopt_object(target: str, candidate: object, options: BridgeOptions) -> PlatformBridge | None:
    """Return the bridge itself, or the bridge for an agent object of a framework; None for anything else.

    Agent objects may be callable, so they are recognized before anything is called.
    """
    if isinstance(candidate, PlatformBridge):
        options.require_none(target)
        return candidate
    packages = {kind.__module__ for kind in type(candidate).__mro__}
    points = entry_points(group=OBJECT_GROUP)
    for name in dict.fromkeys(point.name for point in points):
        if any(f"{package}.".startswith(f"{name}.") for package in packages):
            return _bridge_for_object(name, find_target(points, name, "a bridge for agents of"), candidate, options)
    return None


def _bridge_for_object(package: str, target: str, agent: object, options: BridgeOptions) -> PlatformBridge:
    """Return the bridge that the entry point of a package makes of an agent. Raises: ConfigError, naming the entry point."""
    label = f"The bridge {target} for agents of {package}"
    try:
        make = import_object(target, is_installed=True)
    except ConfigError as error:
        raise ConfigError(f"{label} cannot be imported. {error.message}") from error
    if not callable(make):
        raise ConfigError(f"{label} is not a class or function but {type(make).__name__}. {_PLUGIN_ADVICE}")
    bridge = options.create(make, agent)
    if not isinstance(bridge, PlatformBridge):
        raise ConfigError(f"{label} returned {type(bridge).__name__} instead of a PlatformBridge. {_PLUGIN_ADVICE}")
    return bridge


def _is_factory(candidate: object) -> bool:
    """Return True if calling the object may return an agent. A callable object that requires arguments is no factory."""
    return callable(candidate) and (
        isinstance(candidate, type) or not required_parameters(candidate) or inspect.isroutine(candidate)
    )


def _call_factory(target: str, factory: object) -> object:
    assert callable(factory)
    if required := [parameter.name for parameter in required_parameters(factory)]:
        raise _needs_arguments_error(target, required, is_class=isinstance(factory, type))
    with missing_package_as_config_error(), user_code_errors(f"{target} failed"):
        agent = factory()
    if inspect.iscoroutine(agent):
        agent.close()  # It never starts; closing it avoids the "never awaited" warning.
        raise _async_factory_error(target)
    return agent


def _needs_arguments_error(target: str, required: list[str], *, is_class: bool) -> ConfigError:
    module, _, name = target.partition(":")
    advice = (
        f"Create one in your module, `bridge = {name}(...)`,"
        if is_class
        else f"Pass it to a bridge that calls it with the thread's context, such as `bridge = LangGraphBridge({name})`,"
    )
    return ConfigError(f"{target} requires {', '.join(required)}. {advice} and use that: {module}:bridge")


def _async_factory_error(target: str) -> ConfigError:
    module, _, name = target.partition(":")
    return ConfigError(
        f"{target} is async, and agents are loaded before the server runs. Pass it to a bridge that calls it later, such as "
        f"`bridge = LangGraphBridge({name})`, and use that: {module}:bridge."
    )
