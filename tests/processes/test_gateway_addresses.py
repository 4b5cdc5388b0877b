"""The hosts that an agent may reach: rules, and the addresses that each of them allows."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ambient_runner.processes.gateway_addresses import (
    AddressRefused,
    AllowedHosts,
    HostAccess,
    open_connection_to,
    parse_authority,
)


@pytest.mark.parametrize(
    ("rules", "host", "port", "access"),
    [
        (["api.example.com"], "api.example.com", 443, HostAccess.PRIVATE),
        (["API.Example.com."], "api.example.com", 443, HostAccess.PRIVATE),
        (["api.example.com"], "api.example.com", 80, None),
        (["api.example.com:80"], "api.example.com", 80, HostAccess.PRIVATE),
        (["api.example.com"], "evil-api.example.com", 443, None),
        (["*.example.com"], "api.example.com", 443, HostAccess.PUBLIC),
        (["*.example.com"], "a.b.example.com", 443, HostAccess.PUBLIC),
        (["*.example.com"], "example.com", 443, None),
        (["*.example.com"], "evilexample.com", 443, None),
        (["*.example.com", "api.example.com"], "api.example.com", 443, HostAccess.PRIVATE),
        (["*"], "anything.test", 443, HostAccess.PUBLIC),
        (["*"], "anything.test", 22, None),
        (["10.0.0.5"], "10.0.0.5", 443, HostAccess.ANY),
        (["[::1]:8080"], "[::1]", 8080, HostAccess.ANY),
        ([], "api.example.com", 443, None),
    ],
)
def test_a_rule_allows_a_name_and_a_port(rules: list[str], host: str, port: int, access: HostAccess | None) -> None:
    assert AllowedHosts(rules).find_access(host, port) is access


@pytest.mark.parametrize("rule", ["", "https://x", "x/y", "*x", "a.*.com", "x:0", "x:70000", "x:y", "*.", "a b"])
def test_anything_else_is_not_a_rule(rule: str) -> None:
    with pytest.raises(ValueError):
        AllowedHosts([rule])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Example.COM.:443", ("example.com", 443)), ("[::1]:1", ("[::1]", 1)), ("host", ("host", 80))],
)
def test_an_authority_is_a_host_and_a_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_authority(text, 80) == expected


@pytest.mark.parametrize("text", ["", ":1", "host", "host:0", "host:99999", "u@host:1", "host:1/x", "a b:1", "[::1"])
def test_anything_else_is_not_an_authority(text: str) -> None:
    with pytest.raises(ValueError):
        parse_authority(text)


@pytest.mark.parametrize(
    ("address", "access", "is_allowed"),
    [
        ("127.0.0.1", HostAccess.PUBLIC, False),
        ("10.1.2.3", HostAccess.PUBLIC, False),
        ("169.254.169.254", HostAccess.PUBLIC, False),
        ("::ffff:127.0.0.1", HostAccess.PUBLIC, False),
        ("93.184.216.34", HostAccess.PUBLIC, True),
        ("127.0.0.1", HostAccess.PRIVATE, True),
        ("10.1.2.3", HostAccess.PRIVATE, True),
        ("169.254.169.254", HostAccess.PRIVATE, False),
        ("169.254.169.254", HostAccess.ANY, True),
    ],
)
async def test_only_addresses_of_the_access_are_contacted(
    address: str, access: HostAccess, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to an address of the own network is no way around the rules."""
    contacted: list[str] = []

    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

    async def connect(host: str, port: int) -> Any:
        contacted.append(host)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(ConnectionRefusedError if is_allowed else AddressRefused):
        await open_connection_to("name.test", 443, access)
    assert contacted == ([address] if is_allowed else [])


async def test_the_next_address_is_tried_if_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 443)) for last in (1, 2, 3)]

    async def connect(host: str, port: int) -> Any:
        if host != "127.0.0.2":
            raise ConnectionRefusedError
        return host

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    assert await open_connection_to("name.test", 443, HostAccess.PRIVATE) == "127.0.0.2"
