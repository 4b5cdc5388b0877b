"""From a word on the command line to a bridge: registered names, `name=package.module:attribute`, or `name=http://host:port/`.

Built-in bridges come through the same door as everyone's: the entry-point group `ambient_runner.bridges`. An agent of a framework is taken
as it is: the group `ambient_runner.objects` says by package which bridge it needs. So is any other AG-UI agent, where it is plain that it
is one, and an AG-UI server at a URL. `places.py` finds what is named.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from ambient_runner.bridges.agui import AGUIBridge, is_agui
from ambient_runner.bridges.base import PlatformBridge, agent_name
from ambient_runner.bridges.import_string import installed, meant, object_at, users_own
from ambient_runner.bridges.toolkit.callbacks import needed_arguments
from ambient_runner.config.loader import nearest
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "ambient_runner.bridges"
OBJECTS = "ambient_runner.objects"
"""Entry points named after a package: the bridge for objects whose class comes from there, called with the object."""


_URLS = ("http://", "https://", "remote+http://", "remote+https://")


def load_agents(specs: Iterable[str]) -> dict[str, PlatformBridge]:
    """The agents of these specs by name, in the order given.

    Raises: ConfigError as `load_agent` does, and for a name given twice.
    """
    agents: dict[str, PlatformBridge] = {}
    for spec in specs:
        name, bridge = load_agent(spec)
        if name in agents:
            raise ConfigError(f"Two agents are called {name}. Give one another name: other={spec.rpartition('=')[2]}")
        agents[name] = bridge
    return agents


def load_agent(spec: str) -> tuple[str, PlatformBridge]:
    """The name and the bridge of `demo` (or any registered name), `name=registered`, `name=package.module:attribute` or `name=URL`.

    The attribute is a bridge, a subclass of PlatformBridge, an agent of a framework there is a bridge for, an AG-UI agent, or a function
    without arguments that makes one of these. The URL is another AG-UI server's.
    Raises: ConfigError, saying which part of the spec is wrong.
    """
    name, given, target = ("", "", spec) if _is_url(spec) else spec.partition("=")
    target = target.strip() if given or not name else name.strip()
    name = name.strip()
    right = target if _is_url(target) else meant(target)
    if not given and ":" in right:
        raise ConfigError(f"Give {target} a name: mine={right}")
    if right != target:
        raise ConfigError(f"{target} is not a place in a module, nor a URL. Write {name}={right}")
    if _is_url(target):
        return agent_name(name), _remote(target)
    return agent_name(name), _bridge(target, object_at(target) if ":" in target else _registered(target))


def _is_url(target: str) -> bool:
    return target.strip().startswith(_URLS)


def _remote(target: str) -> PlatformBridge:
    with installed():
        from ambient_runner.bridges.remote import RemoteBridge
    return RemoteBridge(target.removeprefix("remote+"))


def _registered(name: str) -> object:
    known: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        raise ConfigError(
            f"There is no agent {name!r}.{nearest(name, list(known), 0.6)} Known: {', '.join(sorted(known)) or 'none'}. "
            "For your own, write name=package.module:attribute."
        )
    return object_at(known[name].value)


def _bridge(target: str, found: object) -> PlatformBridge:
    bridge = _adopted(found)
    if bridge is not None:
        return bridge
    if is_agui(found) and not (isinstance(found, type) and issubclass(found, PlatformBridge)):
        return AGUIBridge(found)
    made = _made(target, found) if _is_factory(found) else found
    bridge = _adopted(made)
    if bridge is not None:
        return bridge
    if is_agui(made):
        return AGUIBridge(made)
    if isinstance(made, AbstractAsyncContextManager):
        raise _is_async(target)
    if isinstance(made, Starlette):
        raise ConfigError(
            f"{target} is a web app, not an agent. Put your agent in it with add_ambient_endpoints(app, bridge) and run the app itself; "
            "or, if it is an AG-UI server, start it and give its address: mine=http://127.0.0.1:PORT/"
        )
    raise ConfigError(
        f"{target} is not a bridge but {type(made).__name__}. It must be a PlatformBridge, a subclass of it, an agent of a framework "
        "that has a bridge, an AG-UI agent, or a function without arguments that makes one. "
        "For an agent whose `run(input)` gives AG-UI events, make the bridge yourself: AGUIBridge(agent)."
    )


def _adopted(found: object) -> PlatformBridge | None:
    """The bridge itself, or the one for an agent of a framework. Agents may be callable, so they are recognised before they are called."""
    if isinstance(found, PlatformBridge):
        return found
    packages = {kind.__module__ for kind in type(found).__mro__}
    for point in entry_points(group=OBJECTS):
        if any(f"{package}.".startswith(f"{point.name}.") for package in packages):
            make = object_at(point.value)
            assert callable(make)
            bridge = make(found)
            return bridge if isinstance(bridge, PlatformBridge) else None
    return None


def _is_factory(found: object) -> bool:
    """Whether calling it may make an agent. An object that can be called is what it is, and wants more than we have to give."""
    return callable(found) and (isinstance(found, type) or not needed_arguments(found) or inspect.isroutine(found))


def _made(target: str, factory: object) -> object:
    assert callable(factory)
    if needed := [one.name for one in needed_arguments(factory)]:
        raise _needs_arguments(target, needed, is_class=isinstance(factory, type))
    with installed(), users_own(f"{target} failed"):
        made = factory()
    if inspect.iscoroutine(made):
        made.close()  # It has not begun, and nobody else would say that it never will.
        raise _is_async(target)
    return made


def _needs_arguments(target: str, needed: list[str], *, is_class: bool) -> ConfigError:
    module, _, name = target.partition(":")
    advice = (
        f"Make one in your module, `bridge = {name}(...)`,"
        if is_class
        else f"Hand it to a bridge that calls it with the thread's context, such as `bridge = LangGraphBridge({name})`,"
    )
    return ConfigError(f"{target} needs {', '.join(needed)}. {advice} and name that: {module}:bridge")


def _is_async(target: str) -> ConfigError:
    module, _, name = target.partition(":")
    return ConfigError(
        f"{target} is async, and agents are named before the server runs. Hand it to a bridge that calls it later, such as "
        f"`bridge = LangGraphBridge({name})`, and name that: {module}:bridge."
    )
