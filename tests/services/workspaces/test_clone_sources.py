"""Where a clone may come from, by the text of its URL and by the addresses behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.errors import CredentialsInUrl, Forbidden, Refused, ServiceError
from ambient_runner.services.workspaces.clone_sources import CloneSource, SourceRules
from ambient_runner.services.workspaces.git import Git, GitRemote
from tests.machine_speed import unless_hung
from tests.services.remotes import PATH, git_server, make_repo

DEFAULT = SourceRules()
LAX = SourceRules(schemes=("https", "http", "ssh", "file"), allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        *("", " ", "--upload-pack=touch x", "-uid", "ext::sh -c id", "ext::sh%20-c%20id", "fd::17", "transport::x"),
        *("git://host/x", "ftp://host/x", "HTTPS://host/x", "javascript:alert(1)", "data:text/plain,x"),
        *(
            "ssh://-oProxyCommand=id/x",
            "ssh://host:port/x",
            "git@-oProxyCommand=id:x",
            "-oProxyCommand=id:x",
            "host:-x",
        ),
        *(
            "https://",
            "https://host",
            "https:///x",
            "https://ho st/x",
            "https://host\\@evil/x",
            "https://host/x?y=1",
            "https://host/x#y",
        ),
        *(
            "https://host/x\n",
            "https://host/\0",
            "https://höst/x",
            "https://host:999999/x",
            "https://[::1%25eth0]/x",
            "x",
        ),
        *("https://host/" + "x" * 3000, "host:22/x"),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("rules", [DEFAULT, LAX], ids=["default", "lax"])
def test_an_invalid_url_is_refused(rules: SourceRules, url: str) -> None:
    with pytest.raises(Refused):
        rules.parse_url(url)


@pytest.mark.parametrize("url", ["http://host/x", "file:///etc", "/etc", "./x", "../x", "~/x", "~root/x"])
def test_schemes_that_were_not_allowed_are_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        DEFAULT.parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://ann:s3cret-value@host/x",
            "https://s3cret-value@host/x",
            "https://:s3cret-value@host/x",
            "http://a:s3cret-value@host/x",
        ),
        *("ssh://git:s3cret-value@host/x", "ann:s3cret-value@host:x", "https://ann:s3cret value@host/x"),
    ],
)
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(CredentialsInUrl) as refused:
        LAX.parse_url(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "source"),
    [
        (
            "https://GitHub.com/a/b.git",
            CloneSource(url="https://GitHub.com/a/b.git", scheme="https", host="github.com", port=443),
        ),
        ("https://host:8443/a", CloneSource(url="https://host:8443/a", scheme="https", host="host", port=8443)),
        ("ssh://git@host/a/b", CloneSource(url="ssh://git@host/a/b", scheme="ssh", host="host", port=22)),
        ("git@host:a/b.git", CloneSource(url="git@host:a/b.git", scheme="ssh", host="host", port=22)),
        (
            "https://[2001:db8::1]/a",
            CloneSource(url="https://[2001:db8::1]/a", scheme="https", host="[2001:db8::1]", port=443),
        ),
    ],
)
def test_plain_urls_are_taken(url: str, source: CloneSource) -> None:
    assert DEFAULT.parse_url(url) == source


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "0.0.0.0", "10.0.0.8", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("2130706433", "0177.0.0.1", "0x7f.1", "127.1", "224.0.0.1", "255.255.255.255"),
        *(
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fc00::1]",
            "[fec0::1]",
            "[::127.0.0.1]",
            "[64:ff9b:1::7f00:1]",
            "[fd20:ce::254]",
            "168.63.129.16",
        ),
    ],
)
@pytest.mark.parametrize("form", ["https://{}/x", "ssh://git@{}/x", "git@{}:x"])
async def test_private_addresses_are_refused_however_they_are_written(form: str, host: str) -> None:
    with unless_hung():
        with pytest.raises(Forbidden):
            await DEFAULT.check_url(form.format(host))


async def test_private_addresses_are_taken_where_the_server_allows_them() -> None:
    source = await LAX.check_url("http://127.0.0.1:8000/x")
    assert source.addresses == ("127.0.0.1",)


async def test_a_host_that_cannot_be_resolved_is_reported() -> None:
    with unless_hung():
        with pytest.raises(ServiceError):
            await DEFAULT.check_url("https://no-such-host.invalid/x")


@pytest.mark.parametrize(
    ("hosts", "url", "taken"),
    [
        (("github.com",), "https://github.com/a/b", True),
        (("GitHub.com",), "https://github.com/a/b", True),
        (("github.com",), "git@github.com:a/b", True),
        (("github.com",), "https://evil-github.com/a/b", False),
        (("github.com",), "https://github.com.evil.test/a/b", False),
        (("github.com",), "https://sub.github.com/a/b", False),
        (("host:8443",), "https://host:8443/a", True),
        (("host:8443",), "https://host/a", False),
    ],
)
def test_only_named_hosts_are_cloned_from_when_some_are_named(hosts: tuple[str, ...], url: str, taken: bool) -> None:
    rules = SourceRules(hosts=hosts)
    if taken:
        assert rules.parse_url(url).url == url
    else:
        with pytest.raises(Forbidden):
            rules.parse_url(url)


def test_local_directories_are_limited_to_those_that_were_named(tmp_path: Path) -> None:
    for name in ("open", "closed", "root"):
        (tmp_path / name).mkdir()
    (tmp_path / "open" / "way-out").symlink_to(tmp_path / "closed")
    rules = SourceRules(schemes=("file",), local_roots=(tmp_path / "open",), excluded_root=tmp_path / "root")
    assert rules.parse_url(f"{tmp_path}/open/x").directory == tmp_path / "open" / "x"
    for path in ("closed", "open/../closed", "open/way-out", "root/default/ann/trip/repos/x"):
        with pytest.raises(Forbidden):
            rules.parse_url(f"{tmp_path}/{path}")
        with pytest.raises(Forbidden):
            rules.parse_url(f"file://{tmp_path}/{path}")


def test_no_workspace_is_cloned_from_even_when_every_directory_is_open(tmp_path: Path) -> None:
    rules = SourceRules(schemes=("file",), excluded_root=tmp_path)
    with pytest.raises(Forbidden):
        rules.parse_url(f"{tmp_path}/default/ann/trip/repos/x")


async def test_git_connects_to_the_checked_address_even_if_the_name_resolves_differently_later(tmp_path: Path) -> None:
    make_repo(tmp_path / "srv" / "app", {"a": "1"})
    with git_server(tmp_path / "srv") as server:
        source = CloneSource(
            url=server.url("app/.git", host="rebound.invalid"),
            scheme="http",
            host="rebound.invalid",
            port=server.port,
            addresses=("::1", "127.0.0.1"),
        )
        with unless_hung():
            refs = await Git(base_environment=PATH).run("ls-remote", "--", source.url, remote=GitRemote(source=source))
        assert "refs/heads/trunk" in refs
        assert {host for _, host, _ in server.requests} == {f"rebound.invalid:{server.port}"}
