"""The SSEServices of this process, so that a history or state service finds the one whose threads it serves.

The package connects them by nothing but a session service. Here they are connected by that, by the app they are registered on, or by being
the only ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.compat.adk_agui_middleware.data_model.config import ThreadConfig
    from ambient_runner.compat.adk_agui_middleware.service.sse_service import SSEService

__all__ = ["add_service", "find_service"]

_services: WeakSet[SSEService] = WeakSet()


def add_service(service: SSEService) -> None:
    """Remember the service as long as it is used."""
    _services.add(service)


def find_service(config: ThreadConfig, app: Any) -> SSEService | None:
    """Return the service whose threads a history or state service on `app` serves; None if there is none."""
    sharing = [service for service in _services if _shares_sessions(service, config)]
    candidates = (
        sharing or [service for service in _services if any(own is app for own in service.apps)] or list(_services)
    )
    return _with_same_app_name(candidates, config)


def _shares_sessions(service: SSEService, config: ThreadConfig) -> bool:
    return config.session_service is not None and service.runner_config.session_service is config.session_service


def _with_same_app_name(services: Iterable[SSEService], config: ThreadConfig) -> SSEService | None:
    """Return one of the services, if possible one with the same fixed app name."""
    ordered = sorted(services, key=lambda service: service.config_context.app_name != config.app_name)
    return ordered[0] if ordered else None
