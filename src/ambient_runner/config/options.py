"""The whole list of settings: one row gives a setting its variable, its place in the file and its rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ambient_runner.config import parsers
from ambient_runner.config.settings import History, LogLevel, OnBusy, OnDisconnect

if TYPE_CHECKING:
    from ambient_runner.config.parsers import Parser

PREFIX = "AMBIENT_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One setting: where it may be written and what it may be."""

    name: str
    parse: Parser
    path: tuple[str, ...]
    """Its place in `ambient.toml`."""

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper()


def _option(name: str, rule: Parser, *path: str) -> Option:
    return Option(name=name, parse=rule, path=path or (name,))


OPTIONS: tuple[Option, ...] = (
    _option("host", parsers.words),
    _option("port", parsers.whole(0, 65535)),
    _option("store", parsers.store),
    _option("lease", parsers.seconds),
    _option("on_busy", parsers.one_of(get_args(OnBusy))),
    _option("queue_depth", parsers.whole(1, 10_000)),
    _option("queue_wait", parsers.seconds),
    _option("on_disconnect", parsers.one_of(get_args(OnDisconnect))),
    _option("history", parsers.one_of(get_args(History))),
    _option("idle_timeout", parsers.seconds, "timeouts", "idle"),
    _option("total_timeout", parsers.seconds, "timeouts", "total"),
    _option("stop_grace", parsers.seconds, "timeouts", "grace"),
    _option("adapters_kept", parsers.whole(1, 1_000_000)),
    _option("adapter_idle", parsers.seconds),
    _option("max_body", parsers.size),
    _option("retain", parsers.whole(0, 1_000_000_000)),
    _option("slow_reader", parsers.seconds),
    _option("heartbeat", parsers.seconds),
    _option("allowed_hosts", parsers.names),
    _option("allowed_origins", parsers.names),
    _option("pass_headers", parsers.lower_names),
    _option("agents", parsers.names),
    _option("log_level", parsers.one_of(get_args(LogLevel))),
    _option("default_thread", parsers.words),
    _option("workspace", parsers.words),
    _option("git_schemes", parsers.lower_names, "git", "schemes"),
    _option("git_hosts", parsers.lower_names, "git", "hosts"),
    _option("git_private", parsers.yes_or_no, "git", "private"),
    _option("model", parsers.words),
    _option("max_tokens", parsers.whole(1, 10_000_000)),
    _option("temperature", parsers.number(0, 2)),
    _option("system_prompt", parsers.words),
    _option("mcp_config", parsers.words, "mcp", "config"),
    _option("mcp_project", parsers.yes_or_no, "mcp", "project"),
    _option("credentials_url", parsers.fetched, "credentials", "url"),
    _option("credentials_token", parsers.words, "credentials", "token"),
    _option("secret_names", parsers.names, "secrets", "names"),
    _option("tracing", parsers.places, "tracing", "to"),
    _option("trace_content", parsers.yes_or_no, "tracing", "content"),
    _option("otlp_endpoint", parsers.web_url, "tracing", "otlp_endpoint"),
    _option("langfuse_url", parsers.web_url, "tracing", "langfuse_url"),
)
