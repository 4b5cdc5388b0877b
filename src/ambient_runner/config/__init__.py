"""Settings and the environment. Only this package reads the process's environment variables; other packages take a `Settings`, or the
part of it they need.

`settings.py` has the data, `options.py` the name and key of each setting, `parsers.py` the allowed values; `loader.py` reads them.
"""

from ambient_runner.config.environment import (
    MIN_SECRET_LENGTH,
    base_environment,
    git_environment,
    is_secret_name,
    named_environment,
)
from ambient_runner.config.loader import CONFIG_FILE, read_settings
from ambient_runner.config.options import OPTIONS
from ambient_runner.config.parsers import is_loopback
from ambient_runner.config.settings import (
    AgentSettings,
    History,
    LangfuseSettings,
    LogFormat,
    LogLevel,
    OnBusy,
    OnDisconnect,
    OnPendingInterrupt,
    OtlpSettings,
    Settings,
    Timeouts,
    TracingSettings,
)

__all__ = [
    "CONFIG_FILE",
    "MIN_SECRET_LENGTH",
    "OPTIONS",
    "AgentSettings",
    "History",
    "LangfuseSettings",
    "LogFormat",
    "LogLevel",
    "OnBusy",
    "OnDisconnect",
    "OnPendingInterrupt",
    "OtlpSettings",
    "Settings",
    "Timeouts",
    "TracingSettings",
    "base_environment",
    "git_environment",
    "is_loopback",
    "is_secret_name",
    "named_environment",
    "read_settings",
]
