"""From a word on the command line to a bridge: registered names, `name=package.module:attribute`, or `name=http://host:port/`.

Built-in bridges come through the same door as everyone's: the entry-point group `ambient_runner.bridges`. An agent of a framework is taken
as it is: the group `ambient_runner.objects` says by package which bridge it needs. So is any other AG-UI agent, where it is plain that it
is one, and an AG-UI server at a URL.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from contextlib import AbstractAsyncContextManager, contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.bridges.agui import AGUIBridge, is_agui
from ambient_runner.bridges.base import PlatformBridge, agent_name
from ambient_runner.errors import BridgeUnavailable, ConfigError
from ambient_runner.runs.isolate import foreign

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

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
    if not given and ":" in target:
        raise ConfigError(f"Give {target} a name: mine={target}")
    if _is_url(target):
        return agent_name(name), _remote(target)
    return agent_name(name), _bridge(target, _named(target) if ":" in target else _registered(target))


def _is_url(target: str) -> bool:
    return target.strip().startswith(_URLS)


def _remote(target: str) -> PlatformBridge:
    with _installed():
        from ambient_runner.bridges.remote import RemoteBridge
    return RemoteBridge(target.removeprefix("remote+"))


def _registered(name: str) -> object:
    known: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        raise ConfigError(
            f"There is no agent {name!r}. Known: {', '.join(sorted(known)) or 'none'}. "
            "For your own, write name=package.module:attribute."
        )
    return _named(known[name].value)


def _named(target: str) -> object:
    module, _, path = target.partition(":")
    if not module or not path:
        raise ConfigError(f"{target!r} is not a place in a module. Write package.module:attribute.")
    found: object = _module(module)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"The module {module} has no {path}.")
        found = getattr(found, part)
    return found


def _module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    with _installed(), foreign(lambda error: ConfigError(f"The module {name} cannot be imported: {_said(error)}")):
        return importlib.import_module(name)


def _bridge(target: str, found: object) -> PlatformBridge:
    bridge = _adopted(found)
    if bridge is not None:
        return bridge
    if is_agui(found) and not (isinstance(found, type) and issubclass(found, PlatformBridge)):
        return AGUIBridge(found)
    made = _made(target, found) if callable(found) else found
    bridge = _adopted(made)
    if bridge is not None:
        return bridge
    if is_agui(made):
        return AGUIBridge(made)
    if isinstance(made, AbstractAsyncContextManager):
        raise _is_async(target)
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
            make = _named(point.value)
            assert callable(make)
            bridge = make(found)
            return bridge if isinstance(bridge, PlatformBridge) else None
    return None


def _made(target: str, factory: object) -> object:
    assert callable(factory)
    with _installed(), foreign(lambda error: ConfigError(f"{target} cannot be made without arguments: {_said(error)}")):
        made = factory()
    if inspect.iscoroutine(made):
        made.close()  # It has not begun, and nobody else would say that it never will.
        raise _is_async(target)
    return made


def _is_async(target: str) -> ConfigError:
    module, _, name = target.partition(":")
    return ConfigError(
        f"{target} is async, and agents are named before the server runs. Hand it to a bridge that calls it later, such as "
        f"`bridge = LangGraphBridge({name})`, and name that: {module}:bridge."
    )


@contextmanager
def _installed() -> Generator[None]:
    """What is not installed is a matter of the configuration here."""
    try:
        yield
    except BridgeUnavailable as error:
        raise ConfigError(error.message) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
