"""Names of directories, branches and repositories: which are taken, and that no two become one."""

from __future__ import annotations

import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import InvalidInput
from ambient_runner.services.workspaces.safe_names import (
    check_branch,
    check_name,
    directory_name,
    repo_name_from_url,
    thread_branch,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
HARD = [
    "",
    ".",
    "..",
    "../x",
    "/etc",
    "a/b",
    "A",
    "a",
    "\u00e9",
    "e\u0301",
    "\0",
    "=",
    "=41",
    "a" * 300,
    "A" * 300,
    "💥",
    "\ud800",
    "~",
    "-x",
]


def as_a_lax_file_system_sees_it(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


@given(st.sets(ANY_TEXT | st.sampled_from(HARD), max_size=12))
def test_different_texts_never_share_a_directory_even_where_case_and_form_do_not_count(texts: set[str]) -> None:
    assert len({as_a_lax_file_system_sees_it(directory_name(text)) for text in texts}) == len(texts)


@pytest.mark.parametrize("text", HARD, ids=ascii)
def test_a_directory_name_is_one_plain_part_of_a_path(text: str) -> None:
    name = directory_name(text)
    assert name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_=")
    assert len(name) <= 100


def test_ordinary_thread_ids_stay_readable() -> None:
    assert directory_name("0b6f-trip_2") == "0b6f-trip_2"


@pytest.mark.parametrize("text", [*HARD, "fix login", "x.lock", "a..b", "@{", "a:b", "end.", "~^?*["], ids=ascii)
def test_a_thread_branch_is_one_git_accepts(text: str) -> None:
    branch = thread_branch(text)
    subprocess.run(["git", "check-ref-format", "--branch", branch], check=True, capture_output=True)
    assert check_branch(branch) == branch


@pytest.mark.parametrize(
    "branch",
    [
        *(
            "",
            "-x",
            "--upload-pack=touch x",
            "@",
            "@{",
            "a@{1}",
            "..",
            "a..b",
            ":/x",
            "a:b",
            "a b",
            "a~1",
            "a^",
            "a?",
            "a*",
            "a[",
        ),
        *(
            "a\\b",
            ".a",
            "a/.b",
            "a//b",
            "/a",
            "a/",
            "a.",
            "a.lock",
            "a.lock/b",
            "a\nb",
            "a\0b",
            "a\x7fb",
            "x" * 300,
            "HEAD",
        ),
        *("refs/heads/x", "a\u202eb"),
    ],
    ids=ascii,
)
def test_an_invalid_branch_name_is_refused(branch: str) -> None:
    with pytest.raises(InvalidInput):
        check_branch(branch)


@pytest.mark.parametrize(
    "branch", ["main", "feature/x-1", "release/2.0", "déjà", "a@b", "v1.0", "dependabot/npm_and_yarn/x"]
)
def test_branches_of_all_kinds_are_taken(branch: str) -> None:
    assert check_branch(branch) == branch


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=12))
def test_git_agrees_with_every_branch_we_take(branch: str) -> None:
    try:
        check_branch(branch)
    except InvalidInput:
        return
    subprocess.run(["git", "check-ref-format", "--branch", branch], check=True, capture_output=True)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc",
        "a/b",
        "-rf",
        ".hidden",
        "a b",
        "a\0",
        "é",
        "x" * 101,
        "x.git",
        "X.GIT",
        "a.",
        "a.lock",
    ],
)
def test_an_invalid_repository_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_name(name)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/acme/shop.git", "shop"),
        ("https://github.com/acme/shop", "shop"),
        ("https://github.com/acme/shop/", "shop"),
        ("https://gitlab.example.com/group/subgroup/deeper/shop.git", "shop"),
        ("git@github.com:acme/shop.git", "shop"),
        ("git@github.com:shop.git", "shop"),
        ("ssh://git@host:2222/acme/shop.js.git", "shop.js"),
        ("file:///srv/shop", "shop"),
    ],
)
def test_a_repository_is_named_by_the_last_part_of_its_url(url: str, name: str) -> None:
    assert repo_name_from_url(url) == name


@pytest.mark.parametrize("url", ["https://host/..", "https://host/.git", "https://host/-x", "https://host/%2e%2e"])
def test_a_url_without_a_repository_name_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        repo_name_from_url(url)
