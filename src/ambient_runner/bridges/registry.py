"""Load agents: specs (a registered name, `name=package.module:attribute` or `name=http://host:port/`) and tables `[agents.NAME]`.

Built-in bridges and those of other packages are found the same way: by the entry-point group `ambient_runner.bridges`. An agent object of a
framework needs no bridge of the user's: the group `ambient_runner.objects` maps its package to a bridge. Other AG-UI agents are recognised
by their `run`, and AG-UI servers by their URL. `import_string.py` imports the named object.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TypeGuard

from starlette.applications import Starlette

from ambient_runner.bridges.agui import AGUIBridge, is_agui_agent
from ambient_runner.bridges.base import PlatformBridge, check_agent_name
from ambient_runner.bridges.bridge_options import BridgeOptions
from ambient_runner.bridges.import_string import (
    import_object,
    missing_package_as_config_error,
    suggest_target,
    user_code_errors,
)
from ambient_runner.bridges.toolkit.callbacks import required_parameters
from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.config import AgentSettings

BRIDGE_GROUP = "ambient_runner.bridges"
OBJECT_GROUP = "ambient_runner.objects"
"""Entry points named after a package. Each names the bridge that is called with an object whose class comes from that package."""


_URL_PREFIXES = ("http://", "https://", "remote+http://", "remote+https://")


def load_agents(agents: Iterable[str | AgentSettings]) -> dict[str, PlatformBridge]:
    """Return the bridges of these specs and tables by agent name, in their order.

    Raises: ConfigError as `load_agent` does, and for a duplicate name.
    """
    bridges: dict[str, PlatformBridge] = {}
    for agent in agents:
        name, bridge = load_agent(agent)
        if name in bridges:
            target = agent.rpartition("=")[2] if isinstance(agent, str) else agent.use or agent.bridge
            raise ConfigError(f"Two agents are named {name}. Rename one of them: other={target}")
        bridges[name] = bridge
    return bridges


def load_agent(
    agent: str | AgentSettings, configured: Iterable[str | AgentSettings] = ()
) -> tuple[str, PlatformBridge]:
    """Return the name and the bridge of an agent.

    A spec is the name of one of the `configured` agents, `demo` (or any registered name), `name=registered`,
    `name=package.module:attribute` or `name=URL`. The attribute is a bridge, a subclass of PlatformBridge, an agent of a framework that has
    a bridge, an AG-UI agent, or a function without arguments that returns one of these. The URL is that of another AG-UI server.
    Raises: ConfigError, naming the wrong part of the spec or table.
    """
    agent = next((found for found in configured if agent == _agent_name(found)), agent)
    if not isinstance(agent, str):
        return check_agent_name(agent.name), _load_table(agent)
    name, has_name, target = ("", "", agent) if _is_url(agent) else agent.partition("=")
    target = target.strip() if has_name or not name else name.strip()
    name = name.strip()
    corrected = target if _is_url(target) else suggest_target(target)
    if not has_name and ":" in corrected:
        raise ConfigError(f"{target} needs a name. Write mine={corrected}")
    if corrected != target:
        raise ConfigError(f"{target} is neither package.module:attribute nor a URL. Write {name}={corrected}")
    return check_agent_name(name), _load_bridge(target, BridgeOptions())


def _agent_name(agent: str | AgentSettings) -> str:
    return agent.partition("=")[0].strip() if isinstance(agent, str) else agent.name


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
    if target and not _is_url(target) and (corrected := suggest_target(target)) != target:
        raise ConfigError(f"{options.source}: use cannot be {target!r}. Write use = {corrected!r}")
    if not agent.bridge and not target:
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
    factory = _registered_object(agent.bridge)
    if not _is_bridge_class(factory):
        raise ConfigError(f"{options.source}: the bridge {agent.bridge} takes no agent. Remove `use`.")
    return options.create(factory, target if _is_url(target) else import_object(target))


def _load_bridge(target: str, options: BridgeOptions) -> PlatformBridge:
    if _is_url(target):
        return _remote_bridge(target, options)
    return _bridge_for(target, import_object(target) if ":" in target else _registered_object(target), options)


def _is_url(target: str) -> bool:
    return target.strip().startswith(_URL_PREFIXES)


def _remote_bridge(target: str, options: BridgeOptions) -> PlatformBridge:
    with missing_package_as_config_error():
        from ambient_runner.bridges.remote import RemoteBridge
    return options.create(RemoteBridge, target.removeprefix("remote+"))


def _registered_object(name: str) -> object:
    known: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=BRIDGE_GROUP)}
    if name not in known:
        raise ConfigError(
            f"There is no bridge {name!r}.{did_you_mean(name, list(known), 0.6)} Known: {', '.join(sorted(known)) or 'none'}. "
            "For your own, write name=package.module:attribute."
        )
    return import_object(known[name].value)


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
            "or, if it is an AG-UI server, start it and use its URL: mine=http://127.0.0.1:PORT/"
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

    Agent objects may be callable, so they are recognised before anything is called.
    """
    if isinstance(candidate, PlatformBridge):
        options.require_none(target)
        return candidate
    packages = {kind.__module__ for kind in type(candidate).__mro__}
    for point in entry_points(group=OBJECT_GROUP):
        if any(f"{package}.".startswith(f"{point.name}.") for package in packages):
            make = import_object(point.value)
            assert callable(make)
            bridge = options.create(make, candidate)
            return bridge if isinstance(bridge, PlatformBridge) else None
    return None


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
