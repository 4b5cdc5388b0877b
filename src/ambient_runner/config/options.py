"""The whole list of settings: one row gives a setting its variable, its place in the file and its rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ambient_runner.config import parse
from ambient_runner.config.settings import History, LogLevel, OnBusy, OnDisconnect

if TYPE_CHECKING:
    from ambient_runner.config.parse import Parser

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
    _option("host", parse.words),
    _option("port", parse.whole(0, 65535)),
    _option("store", parse.store),
    _option("lease", parse.seconds),
    _option("on_busy", parse.one_of(get_args(OnBusy))),
    _option("queue_depth", parse.whole(1, 10_000)),
    _option("queue_wait", parse.seconds),
    _option("on_disconnect", parse.one_of(get_args(OnDisconnect))),
    _option("history", parse.one_of(get_args(History))),
    _option("idle_timeout", parse.seconds, "timeouts", "idle"),
    _option("total_timeout", parse.seconds, "timeouts", "total"),
    _option("stop_grace", parse.seconds, "timeouts", "grace"),
    _option("adapters_kept", parse.whole(1, 1_000_000)),
    _option("adapter_idle", parse.seconds),
    _option("max_body", parse.size),
    _option("retain", parse.whole(0, 1_000_000_000)),
    _option("slow_reader", parse.seconds),
    _option("heartbeat", parse.seconds),
    _option("allowed_hosts", parse.names),
    _option("allowed_origins", parse.names),
    _option("pass_headers", parse.lower_names),
    _option("agents", parse.names),
    _option("log_level", parse.one_of(get_args(LogLevel))),
    _option("default_thread", parse.words),
    _option("workspace", parse.words),
    _option("git_schemes", parse.lower_names, "git", "schemes"),
    _option("git_hosts", parse.lower_names, "git", "hosts"),
    _option("git_private", parse.yes_or_no, "git", "private"),
    _option("model", parse.words),
    _option("max_tokens", parse.whole(1, 10_000_000)),
    _option("temperature", parse.number(0, 2)),
    _option("system_prompt", parse.words),
    _option("mcp_config", parse.words, "mcp", "config"),
    _option("mcp_project", parse.yes_or_no, "mcp", "project"),
    _option("credentials_url", parse.fetched, "credentials", "url"),
    _option("credentials_token", parse.words, "credentials", "token"),
    _option("secret_names", parse.names, "secrets", "names"),
    _option("tracing", parse.places, "tracing", "to"),
    _option("trace_content", parse.yes_or_no, "tracing", "content"),
    _option("otlp_endpoint", parse.web_url, "tracing", "otlp_endpoint"),
    _option("langfuse_url", parse.web_url, "tracing", "langfuse_url"),
)
