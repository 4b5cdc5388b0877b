"""Hosts and origins are read in the form in which requests have them. What could never match one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from tests.server.demo_server import client_of, run_body

APP = "https://app.example.com"


def origins(value: str) -> tuple[str, ...]:
    return read_settings(None, {"AMBIENT_ALLOWED_ORIGINS": value}).allowed_origins


def hosts(value: str) -> tuple[str, ...]:
    return read_settings(None, {"AMBIENT_ALLOWED_HOSTS": value}).allowed_hosts


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("value", [f"{APP}/", "HTTPS://App.Example.com", f"{APP}:443", f"{APP}:0443/"])
async def test_an_origin_is_compared_as_browsers_send_it(value: str) -> None:
    """It was accepted, and the page got 403 with the advice to add the origin."""
    assert origins(value) == (APP,)
    app = create_app(Settings(store="memory://", allowed_origins=(value,)), {"demo": DemoBridge()})
    async with client_of(app) as client:
        response = await client.post("/", json=run_body("help"), headers={"origin": APP})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, APP)


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "*",
            "null",
            APP,
            "http://app.example.com:8080",
            "http://my_host",
            "http://[::1]:3000",
            "http://localhost:443",
        ),
        *("capacitor://localhost", "file://", "chrome-extension://Abc", "https://xn--bcher-kva.example"),
    ],
)
def test_an_origin_that_browsers_send_stays_as_it_is(origin: str) -> None:
    assert origins(origin) == (origin,)


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        ("app.example.com", APP),
        ("localhost:3000", "http://localhost:3000"),
        (f"{APP}/page?x=1#y", APP),
        ("https://ann@app.example.com:444", f"{APP}:444"),
    ],
)
def test_a_value_that_is_no_origin_is_refused_with_the_origin_to_write(value: str, instead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        origins(value)
    assert caught.value.message.startswith("AMBIENT_ALLOWED_ORIGINS must be ")
    assert caught.value.message.endswith(f"{value!r} is no origin: write {instead}.")
    assert origins(instead) == (instead,)


@pytest.mark.parametrize(
    "value",
    [
        *("foo bar", "https://", "https://a b", "https://*.example.com", "*.example.com", "https://bücher.example"),
        *(f"{APP}:0", f"{APP}:65536", f"{APP}:x", "http://[::g]", "http://::1", "//app.example.com:x"),
    ],
)
def test_a_value_that_no_browser_sends_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="AMBIENT_ALLOWED_ORIGINS must be "):
        origins(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("agents.example.com:8000", "agents.example.com"),
        ("agents.example.com/", "agents.example.com"),
        ("Agents.Example.com", "agents.example.com"),
        *(("::1", "::1"), ("[::1]", "::1"), ("[::1]:8000", "::1"), ("my_host", "my_host"), ("10.0.0.1:80", "10.0.0.1")),
    ],
)
def test_a_host_is_compared_without_its_port(value: str, name: str) -> None:
    assert hosts(value) == (name,)


async def test_a_host_that_is_listed_with_a_port_is_served() -> None:
    """Requests got 403 with the advice to add the host."""
    settings = Settings(store="memory://", allowed_hosts=("agents.example.com:8000",))
    async with client_of(create_app(settings, {"demo": DemoBridge()})) as client:
        response = await client.get("/health", headers={"host": "agents.example.com"})
    assert response.status_code == 200


def test_a_url_in_place_of_a_host_is_refused_with_the_name_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        hosts("https://agents.example.com:8000/chat")
    assert caught.value.message.endswith("is no host name: write agents.example.com.")


@pytest.mark.parametrize("value", ["*", "*.example.com", "foo bar", "a:b", "bücher.example", "https://"])
def test_a_host_that_no_request_has_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="AMBIENT_ALLOWED_HOSTS must be "):
        hosts(value)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("allowed_origins", Settings(store="memory://", allowed_origins=("app.example.com",))),
        ("allowed_hosts", Settings(store="memory://", allowed_hosts=("*",))),
    ],
)
def test_settings_that_are_made_in_code_are_checked_alike(name: str, settings: Settings) -> None:
    with pytest.raises(ConfigError) as caught:
        create_app(settings, {"demo": DemoBridge()})
    assert caught.value.message.startswith(f"The setting {name} must be ")
