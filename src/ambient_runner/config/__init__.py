"""Settings and the environment. Only this package reads the process's environment variables; other packages take a `Settings`, or the
part of it they need.

`settings.py` has the data, `options.py` the name and key of each setting, `parsers.py` and `request_origins.py` the allowed values;
`loader.py` reads them.
`permission_rules.py` has the rules that answer permission requests.
"""

from ambient_runner.config.credential_patterns import SECRET_PATTERNS, find_pattern_values
from ambient_runner.config.environment import base_environment, git_environment, named_environment
from ambient_runner.config.guessability import MIN_SECRET_LENGTH, consists_of_words, estimate_bits, is_guessable
from ambient_runner.config.loader import CONFIG_FILE, read_settings, with_environment_secrets
from ambient_runner.config.options import OPTIONS
from ambient_runner.config.parsers import is_loopback
from ambient_runner.config.permission_rules import PermissionRule
from ambient_runner.config.request_origins import parse_hosts, parse_origins
from ambient_runner.config.secret_patterns import PatternMatch, SecretPattern
from ambient_runner.config.secret_values import is_secret_name, url_passwords
from ambient_runner.config.settings import (
    AgentSettings,
    AudienceName,
    Exposure,
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
from ambient_runner.config.streamed_values import SPLIT_ADVICE, TOKEN_CHARS, TOKEN_RUN, is_split_by_streams

__all__ = [
    "CONFIG_FILE",
    "MIN_SECRET_LENGTH",
    "OPTIONS",
    "SECRET_PATTERNS",
    "SPLIT_ADVICE",
    "TOKEN_CHARS",
    "TOKEN_RUN",
    "AgentSettings",
    "AudienceName",
    "Exposure",
    "History",
    "LangfuseSettings",
    "LogFormat",
    "LogLevel",
    "OnBusy",
    "OnDisconnect",
    "OnPendingInterrupt",
    "OtlpSettings",
    "PatternMatch",
    "PermissionRule",
    "SecretPattern",
    "Settings",
    "Timeouts",
    "TracingSettings",
    "base_environment",
    "consists_of_words",
    "estimate_bits",
    "find_pattern_values",
    "git_environment",
    "is_guessable",
    "is_loopback",
    "is_secret_name",
    "is_split_by_streams",
    "named_environment",
    "parse_hosts",
    "parse_origins",
    "read_settings",
    "url_passwords",
    "with_environment_secrets",
]
