"""Which token is for which host, and which is for none."""

from __future__ import annotations

import pytest

from ambient_runner.services.workspaces.clone_sources import SourceRules
from ambient_runner.services.workspaces.git_logins import GitLogin, login_for

RULES = SourceRules(schemes=("https", "http", "ssh"), allow_private=True)
TOKENS = {"GITHUB_TOKEN": "hub-token-1", "GITLAB_TOKEN": "lab-token-1"}
HUB = GitLogin(origin="https://github.com", user="x-access-token", token="hub-token-1")
LAB = GitLogin(origin="https://gitlab.com", user="oauth2", token="lab-token-1")


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("https://github.com/a/b", HUB),
        ("https://GITHUB.com:443/a/b", HUB),
        ("https://gitlab.com/a/b/c", LAB),
        ("https://evil-github.attacker.test/a/b", None),
        ("https://github.com.attacker.test/a/b", None),
        ("https://gitlab.attacker.test/a/b", None),
        ("https://sub.github.com/a/b", None),
        ("https://github.com:8443/a/b", None),
        ("http://github.com/a/b", None),
        ("git@github.com:a/b", None),
        ("https://attacker.test/github.com/b", None),
    ],
)
def test_a_token_is_for_its_own_host_and_for_no_other(url: str, login: GitLogin | None) -> None:
    assert login_for(RULES.parse_url(url), TOKENS) == login


def test_a_token_can_be_granted_for_another_host_and_then_is_not_for_the_usual_one() -> None:
    granted = {**TOKENS, "GH_HOST": "github.example.com", "GITLAB_HOST": "https://Lab.example.com:8443/"}
    assert login_for(RULES.parse_url("https://github.com/a/b"), granted) is None
    assert login_for(RULES.parse_url("https://github.example.com/a"), granted) == GitLogin(
        origin="https://github.example.com", user="x-access-token", token="hub-token-1"
    )
    assert login_for(RULES.parse_url("https://lab.example.com:8443/a"), granted) == GitLogin(
        origin="https://lab.example.com:8443", user="oauth2", token="lab-token-1"
    )


@pytest.mark.parametrize(("url", "is_sent"), [("http://127.0.0.1:80/a", True), ("http://10.0.0.1/a", False)])
def test_a_token_travels_in_the_clear_only_on_this_machine(url: str, is_sent: bool) -> None:
    granted = {"GITLAB_TOKEN": "lab-token-1", "GITLAB_HOST": RULES.parse_url(url).netloc}
    assert (login_for(RULES.parse_url(url), granted) is not None) == is_sent


@pytest.mark.parametrize("token", ["", "two\nlines", "host=evil\r\n", "nul\0"])
def test_a_token_with_a_line_break_is_not_used(token: str) -> None:
    assert login_for(RULES.parse_url("https://github.com/a/b"), {"GITHUB_TOKEN": token}) is None


def test_a_login_does_not_show_its_token() -> None:
    assert "hub-token-1" not in repr(HUB)
