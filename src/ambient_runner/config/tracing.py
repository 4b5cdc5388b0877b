"""Where runs are traced to, from the settings and from the variables that OpenTelemetry and Langfuse define."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from ambient_runner.config.parse import web_url
from ambient_runner.config.settings import LangfuseSettings, OtlpSettings, TracingSettings
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def take_tracing(values: dict[str, object], environ: Mapping[str, str]) -> TracingSettings:
    """Takes its options out of `values`. What they leave open, the variables that OpenTelemetry and Langfuse define say."""
    places = cast("tuple[str, ...]", values.pop("tracing", ()))
    otlp = cast("str", values.pop("otlp_endpoint", ""))
    langfuse = cast("str", values.pop("langfuse_url", ""))
    return TracingSettings(
        otlp=_otlp(otlp, environ) if "otlp" in places else None,
        langfuse=_langfuse(langfuse, environ) if "langfuse" in places else None,
        content=cast("bool | None", values.pop("trace_content", None)),
    )


def _otlp(given: str, environ: Mapping[str, str]) -> OtlpSettings:
    base = given or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/") or "http://localhost:4318"
    exact = "" if given else environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    headers = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = [pair.partition("=") for pair in headers.split(",") if "=" in pair]
    return OtlpSettings(
        endpoint=_address("the collector", exact or (base if base.endswith("/v1/traces") else f"{base}/v1/traces")),
        headers=tuple((name.strip().lower(), unquote(value.strip())) for name, _, value in pairs),
    )


def _langfuse(given: str, environ: Mapping[str, str]) -> LangfuseSettings:
    url = given or environ.get("LANGFUSE_BASE_URL") or environ.get("LANGFUSE_HOST", "")
    public, secret = environ.get("LANGFUSE_PUBLIC_KEY", ""), environ.get("LANGFUSE_SECRET_KEY", "")
    if not (url and public and secret):
        raise ConfigError(
            "Tracing to Langfuse needs its address in tracing.langfuse_url or LANGFUSE_BASE_URL, and the project's keys"
            " in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY."
        )
    return LangfuseSettings(
        url=_address("Langfuse", url),
        public_key=public,
        secret_key=secret,
        stage=environ.get("LANGFUSE_TRACING_ENVIRONMENT", ""),
    )


def _address(whose: str, url: str) -> str:
    try:
        return web_url(url)
    except ValueError as error:
        raise ConfigError(f"The address of {whose} must be {error}.") from error
