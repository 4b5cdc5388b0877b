"""Tracing settings: the variables of OpenTelemetry and Langfuse fill in what ours leave open."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.config import LangfuseSettings, OtlpSettings, Settings, TracingSettings, read_settings
from ambient_runner.errors import ConfigError

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-7c1f09e2b4", "LANGFUSE_SECRET_KEY": "sk-lf-93ad50f6e8"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tracing(**environ: str) -> TracingSettings:
    return read_settings(environ=environ).tracing


def test_variables_of_others_do_not_switch_it_on() -> None:
    others = KEYS | {"LANGFUSE_BASE_URL": "https://l.example", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c.example"}
    assert tracing(**others) == TracingSettings() == Settings().tracing


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, "http://localhost:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c.example:4318/"}, "http://c.example:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c.example/own"}, "http://c.example/own"),
        ({"AMBIENT_OTLP_ENDPOINT": "https://o.example"}, "https://o.example/v1/traces"),
        ({"AMBIENT_OTLP_ENDPOINT": "https://o.example/v1/traces"}, "https://o.example/v1/traces"),
        (
            {"AMBIENT_OTLP_ENDPOINT": "https://o.example", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c.example"},
            "https://o.example/v1/traces",
        ),
    ],
)
def test_the_collector_is_where_opentelemetry_says_unless_it_is_named_here(
    environ: dict[str, str], endpoint: str
) -> None:
    assert tracing(AMBIENT_TRACING="otlp", **environ) == TracingSettings(otlp=OtlpSettings(endpoint=endpoint))


def test_headers_of_the_collector_are_read_and_their_values_are_secrets() -> None:
    settings = read_settings(
        environ={
            "AMBIENT_TRACING": "otlp",
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20collector-key-1, x-team=agents",
        }
    )
    assert settings.tracing.otlp is not None
    assert settings.tracing.otlp.headers == (("authorization", "Bearer collector-key-1"), ("x-team", "agents"))
    assert settings.secrets == ("Bearer collector-key-1", "collector-key-1")
    assert "collector-key" not in repr(settings)


def test_langfuse_needs_an_address_and_both_keys() -> None:
    whole = KEYS | {"LANGFUSE_HOST": "https://l.example/", "LANGFUSE_TRACING_ENVIRONMENT": "staging"}
    expected = LangfuseSettings(
        url="https://l.example",
        public_key=KEYS["LANGFUSE_PUBLIC_KEY"],
        secret_key=KEYS["LANGFUSE_SECRET_KEY"],
        stage="staging",
    )
    assert tracing(AMBIENT_TRACING="langfuse", **whole) == TracingSettings(langfuse=expected)
    for missing in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY", "LANGFUSE_HOST"):
        with pytest.raises(ConfigError):
            tracing(AMBIENT_TRACING="langfuse", **{name: value for name, value in whole.items() if name != missing})


def test_the_keys_of_langfuse_are_secrets_in_every_form_in_which_they_are_sent() -> None:
    settings = read_settings(
        environ=KEYS | {"AMBIENT_TRACING": "langfuse", "AMBIENT_LANGFUSE_URL": "https://l.example"}
    )
    langfuse = settings.tracing.langfuse
    assert langfuse is not None
    assert set(settings.secrets) == {
        KEYS["LANGFUSE_SECRET_KEY"],
        langfuse.authorization,
        langfuse.authorization.removeprefix("Basic "),
    }
    assert [value for value in settings.secrets if value in repr(settings)] == []


@pytest.mark.parametrize(
    "environ",
    [
        {"AMBIENT_TRACING": "jaeger"},
        {"AMBIENT_TRACING": "otlp", "AMBIENT_OTLP_ENDPOINT": "collector:4318"},
        {"AMBIENT_TRACING": "otlp", "AMBIENT_TRACE_CONTENT": "perhaps"},
        {"AMBIENT_TRACING": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"},
        {"AMBIENT_TRACING": "langfuse", "LANGFUSE_BASE_URL": "not a url"} | KEYS,
        {"AMBIENT_TRACING": "langfuse", "LANGFUSE_BASE_URL": "https://pk:sk@l.example"} | KEYS,
    ],
)
def test_what_is_not_allowed_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        read_settings(environ=environ)
