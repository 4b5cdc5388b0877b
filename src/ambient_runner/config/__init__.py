"""Settings and the environment. This is the only room that looks at the process's variables; everyone else is handed a `Settings`, or the
part of it they need.

`settings.py` says what there is, `options.py` how each is written, `parse.py` what it may be; `reading.py` puts them together.
"""

from ambient_runner.config.environment import (
    SHORTEST_SECRET,
    git_environment,
    harmless_environment,
    is_secret_name,
    named_environment,
)
from ambient_runner.config.loader import CONFIG_FILE, read_settings
from ambient_runner.config.options import OPTIONS
from ambient_runner.config.parsers import is_loopback
from ambient_runner.config.settings import (
    History,
    LangfuseSettings,
    LogLevel,
    OnBusy,
    OnDisconnect,
    OtlpSettings,
    Settings,
    Timeouts,
    TracingSettings,
)

__all__ = [
    "CONFIG_FILE",
    "OPTIONS",
    "SHORTEST_SECRET",
    "History",
    "LangfuseSettings",
    "LogLevel",
    "OnBusy",
    "OnDisconnect",
    "OtlpSettings",
    "Settings",
    "Timeouts",
    "TracingSettings",
    "git_environment",
    "harmless_environment",
    "is_loopback",
    "is_secret_name",
    "named_environment",
    "read_settings",
]
