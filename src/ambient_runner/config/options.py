"""The table of settings: each row has the name of a setting, its parser and its key in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ambient_runner.config import parsers
from ambient_runner.config.request_origins import parse_hosts, parse_origins
from ambient_runner.config.settings import (
    AudienceName,
    History,
    LogFormat,
    LogLevel,
    OnBusy,
    OnDisconnect,
    OnPendingInterrupt,
)

if TYPE_CHECKING:
    from ambient_runner.config.parsers import Parser

ENV_PREFIX = "AMBIENT_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One setting: its name, its parser and its key in the file."""

    name: str
    parse: Parser
    path: tuple[str, ...]
    """Key path in `ambient.toml`."""

    @property
    def env_name(self) -> str:
        return ENV_PREFIX + self.name.upper()


def _make_option(name: str, parser: Parser, *path: str) -> Option:
    return Option(name=name, parse=parser, path=path or (name,))


OPTIONS: tuple[Option, ...] = (
    _make_option("host", parsers.parse_text),
    _make_option("port", parsers.integer_between(0, 65535)),
    _make_option("store", parsers.parse_store_url),
    _make_option("lease", parsers.parse_seconds),
    _make_option("store_patience", parsers.parse_seconds),
    _make_option("on_busy", parsers.choice_of(get_args(OnBusy))),
    _make_option("queue_depth", parsers.integer_between(1, 10_000)),
    _make_option("queue_wait", parsers.parse_seconds),
    _make_option("on_disconnect", parsers.choice_of(get_args(OnDisconnect))),
    _make_option("on_pending_interrupt", parsers.choice_of(get_args(OnPendingInterrupt))),
    _make_option("history", parsers.choice_of(get_args(History))),
    _make_option("adopt_history", parsers.parse_bool),
    _make_option("audience", parsers.choice_of(get_args(AudienceName))),
    _make_option("exposure", parsers.parse_exposure),
    _make_option("idle_timeout", parsers.parse_seconds, "timeouts", "idle"),
    _make_option("total_timeout", parsers.parse_seconds, "timeouts", "total"),
    _make_option("stop_grace", parsers.parse_seconds, "timeouts", "grace"),
    _make_option("adapters_kept", parsers.integer_between(1, 1_000_000)),
    _make_option("adapter_idle", parsers.parse_seconds),
    _make_option("max_body", parsers.size_up_to("1GiB")),
    _make_option("retain", parsers.integer_between(0, 1_000_000_000)),
    _make_option("view_cache", parsers.size_up_to("1024GiB")),
    _make_option("slow_reader", parsers.parse_seconds),
    _make_option("heartbeat", parsers.parse_seconds),
    _make_option("operators", parsers.parse_names),
    _make_option("allowed_hosts", parse_hosts),
    _make_option("allowed_origins", parse_origins),
    _make_option("client", parsers.parse_version),
    _make_option("pass_headers", parsers.parse_lower_names),
    _make_option("forwarded_props", parsers.parse_prop_names),
    _make_option("agents", parsers.parse_agents),
    _make_option("middleware", parsers.parse_names),
    _make_option("log_level", parsers.choice_of(get_args(LogLevel))),
    _make_option("log_format", parsers.choice_of(get_args(LogFormat))),
    _make_option("default_thread", parsers.parse_text),
    _make_option("workspace", parsers.parse_text),
    _make_option("cwd", parsers.parse_directory),
    _make_option("git_schemes", parsers.parse_lower_names, "git", "schemes"),
    _make_option("git_hosts", parsers.parse_lower_names, "git", "hosts"),
    _make_option("git_private", parsers.parse_bool, "git", "private"),
    _make_option("model", parsers.parse_text),
    _make_option("max_tokens", parsers.integer_between(1, 10_000_000)),
    _make_option("temperature", parsers.number_between(0, 2)),
    _make_option("system_prompt", parsers.parse_text),
    _make_option("mcp_config", parsers.parse_text, "mcp", "config"),
    _make_option("mcp_project", parsers.parse_bool, "mcp", "project"),
    _make_option("credentials_url", parsers.parse_https_or_local_url, "credentials", "url"),
    _make_option("credentials_token", parsers.parse_text, "credentials", "token"),
    _make_option("secret_names", parsers.parse_names, "secrets", "names"),
    _make_option("secret_patterns", parsers.parse_secret_patterns, "secrets", "patterns"),
    _make_option("secrets_strict", parsers.parse_bool, "secrets", "strict"),
    _make_option("tracing", parsers.parse_trace_targets, "tracing", "to"),
    _make_option("trace_content", parsers.parse_bool, "tracing", "content"),
    _make_option("otlp_endpoint", parsers.parse_web_url, "tracing", "otlp_endpoint"),
    _make_option("langfuse_url", parsers.parse_web_url, "tracing", "langfuse_url"),
)
