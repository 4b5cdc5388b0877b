"""Paths whose files make other programs run commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ambient_runner.bridges.toolkit.command_files import edits_protected_path, is_protected
from ambient_runner.bridges.toolkit.permission_rules import RequestedCall

CWD = "/srv/project"


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/config",
        ".git",
        "vendor/lib/.git/config",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".mcp.json",
        "packages/web/.mcp.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        "opencode.json",
        ".opencode/plugin/x.ts",
        ".vscode/tasks.json",
        ".husky/pre-commit",
        ".envrc",
        "ambient.toml",
        f"{CWD}/.git/config",
        "src/../.git/config",
        "./.git//config",
        ".GIT/config",
        ".git./config",
        ".Envrc",
        "/home/ann/.bashrc",
        *(".cshrc", ".tcshrc", ".login", ".logout", ".kshrc", ".zlogout", ".bash_aliases", ".bash_logout"),
        *(".config/fish/config.fish", "home/.config/fish/functions/ls.fish", ".config/mise/config.toml"),
        *("mise.local.toml", ".mise.local.toml", ".mise.toml", "mise.toml", ".mise/config.toml"),
        *("lefthook-local.yml", "lefthook.yaml", ".lefthook.toml", ".lefthook-local.json"),
        ".g\u200cit/config",
        ".g\ufeffi\u00adt/config",
        ".Env\ufe0frc",
        "\u200b.bashrc",
    ],
)
def test_a_file_that_makes_programs_run_commands_is_protected(path: str) -> None:
    assert is_protected(path, CWD, resolve=lambda found: found)


@pytest.mark.parametrize(
    "path",
    [
        "fish/config.fish",
        ".config/app/fish",
        "mise.md",
        "lefthook",
        "src/caf\u00e9.py",
        "src/app.py",
        ".github/workflows/ci.yml",
        ".gitignore",
        "git/config",
        "docs/.envrc.md",
        "my.git/config",
        ".",
        CWD,
    ],
)
def test_any_other_file_is_not(path: str) -> None:
    assert not is_protected(path, CWD, resolve=lambda found: found)


@pytest.mark.parametrize("cwd", ["/home/ann/.codex/worktrees/a/project", "/home/ann/.claude/worktrees/a"])
def test_a_working_directory_below_such_a_directory_counts_for_nothing(cwd: str) -> None:
    assert not is_protected("src/app.py", cwd, resolve=lambda found: found)
    assert is_protected(".git/config", cwd, resolve=lambda found: found)


def test_links_are_followed_and_a_path_that_has_no_real_one_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "innocent").symlink_to(".git")
    (tmp_path / ".codex").symlink_to(tmp_path / "elsewhere")
    assert is_protected("innocent/config", str(tmp_path))
    assert is_protected(".codex/config.toml", str(tmp_path))
    assert not is_protected("other/config", str(tmp_path))
    assert is_protected("other/config", str(tmp_path), resolve=lambda path: None)


@pytest.mark.parametrize(
    ("kind", "members", "is_found"),
    [
        ("edit", {"paths": ("src/app.py",)}, False),
        ("edit", {"paths": ("src/app.py", ".envrc")}, True),
        ("edit", {"paths": ("src/app.py",), "possible_paths": (".envrc",)}, True),
        ("read", {"paths": (".envrc",)}, False),
        ("execute", {"command": "cp x .git/hooks/pre-commit"}, True),
        ("execute", {"command": "/bin/cp x '.git/hooks/pre-commit'"}, True),
        ("execute", {"command": "cp x hooks/pre-commit", "directory": ".git"}, True),
        ("execute", {"possible_commands": ("cd .husky && mv ../x pre-commit",)}, True),
        ("execute", {"command": "cat .git/config"}, False),
        ("execute", {"command": "cp x y"}, False),
        ("execute", {"command": "x" * 200_000}, True),
        ("execute", {"command": " ".join(map(str, range(1000)))}, True),
    ],
)
def test_a_call_edits_a_protected_path_if_it_may_name_one(kind: str, members: dict[str, Any], is_found: bool) -> None:
    call = RequestedCall(agent="", cwd=CWD, kind=kind, **members)
    assert edits_protected_path(call, resolve=lambda path: path) is is_found
