"""Trees of strangers: deeper than any recursion or path may be, closed, or partly not ours to remove."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ambient_runner.files import safe_trees
from ambient_runner.files.safe_trees import MAX_DEPTH, is_tree_within, remove_tree

PLENTY = {"max_bytes": 1 << 20, "max_files": 1 << 20}


def deep(directory: Path, levels: int, name: str = "d" * 50) -> None:
    """Directories in directories, each with a file; as a whole longer than a path may be."""
    at = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def test_a_tree_deeper_than_recursion_and_paths_go_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    deep(tree, 3000)
    assert remove_tree(tree)
    assert list(tmp_path.iterdir()) == []


def test_removing_a_wide_tree_follows_no_link_and_opens_what_was_closed(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    for name in ("a", "b", "b/c", "b/c/d", "closed"):
        (tree / name).mkdir(parents=True)
        (tree / name / "file").write_text("x")
        (tree / name / "link").symlink_to(outside)
    (tree / "closed").chmod(0)
    (tree / "b/c").chmod(0o500)
    tree.chmod(0o500)
    assert remove_tree(tree)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "outside"]


def test_a_link_in_place_of_a_tree_is_removed_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "tree").symlink_to(tmp_path / "outside")
    assert remove_tree(tmp_path / "tree")
    assert remove_tree(tmp_path / "never-there")
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_what_cannot_be_removed_is_logged_and_the_rest_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "b/c").mkdir(parents=True)
    for name in ("a", "b/stuck", "b/c/d"):
        (tree / name).write_text("x")
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == "stuck":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(safe_trees.os, "unlink", refuse)
    assert not remove_tree(tree)
    assert sorted(path.name for path in tree.rglob("*")) == ["b", "stuck"]


def test_a_deep_tree_is_too_large(tmp_path: Path) -> None:
    for name, levels in (("fits", MAX_DEPTH - 1), ("deep", MAX_DEPTH + 2)):
        (tmp_path / name).mkdir()
        deep(tmp_path / name, levels, "d")
    assert is_tree_within(tmp_path / "fits", **PLENTY)
    assert not is_tree_within(tmp_path / "deep", **PLENTY)


def test_a_tree_too_long_to_be_named_is_too_large(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    deep(tree, 60, "d" * 200)
    assert not is_tree_within(tree, **PLENTY)
    assert remove_tree(tree)


def test_use_counts_files_directories_and_links_but_nothing_behind_links(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 10_000)
    (tree / "a/file").write_bytes(b"x" * 100)
    (tree / "link").symlink_to(outside)
    room = 100 + len(str(outside))
    assert is_tree_within(tree, max_bytes=room, max_files=3)
    assert not is_tree_within(tree, max_bytes=room - 1, max_files=3)
    assert not is_tree_within(tree, max_bytes=room, max_files=2)
