"""The record of a workspace: read as it was written, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from ambient_runner.errors import ServiceError
from ambient_runner.services.workspaces.manifest import (
    RepoEntry,
    Rubric,
    WorkflowConfig,
    WorkflowEntry,
    WorkspaceManifest,
    read_manifest,
    write_manifest,
)

FULL = WorkspaceManifest(
    repos=(
        RepoEntry(name="app", directory="app-2", url="https://host/app", branch="trunk", branches=("dev", "trunk")),
        RepoEntry(name="empty", directory="empty", url="https://host/empty"),
    ),
    workflow=WorkflowEntry(
        directory="flow",
        url="https://host/flow",
        path="a/b",
        config=WorkflowConfig(name="n", rubric=Rubric(activation_prompt="p", schema={"type": "object"}, text="t")),
    ),
    stale=("app",),
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == WorkspaceManifest()
    write_manifest(tmp_path, FULL)
    assert read_manifest(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["workspace.json"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"version": 2}', '{"repos": {}}', '{"repos": [{}]}', "\ud800", "[" * 5000),
        '{"repos": [{"name": "../x", "folder": "x", "url": "u"}]}',
        '{"repos": [{"name": "x", "folder": "../../x", "url": "u"}]}',
        '{"repos": [{"name": "x", "folder": "", "url": "u"}]}',
        '{"stale": [".."]}',
        '{"stale": ["a/b"]}',
        '{"stale": [""]}',
        '{"workflow": {"folder": "..", "url": "u"}}',
        '{"workflow": {"folder": "x", "url": "u", "path": "../.."}}',
        '{"workflow": {"folder": "x", "url": "u", "path": "/etc"}}',
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_a_damaged_manifest_is_an_error_and_never_an_empty_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "workspace.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ServiceError) as failed:
        read_manifest(tmp_path)
    assert str(tmp_path) not in failed.value.message


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "pipe"])
def test_something_else_in_place_of_the_manifest_is_an_error(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "workspace.json"
    match kind:
        case "link":
            (tmp_path / "other").write_bytes(msgspec.json.encode(FULL))
            place.symlink_to(tmp_path / "other")
        case "dangling":
            place.symlink_to(tmp_path / "nothing")
        case "directory":
            place.mkdir()
        case _:
            os.mkfifo(place)
    with pytest.raises(ServiceError):
        read_manifest(tmp_path)


def test_a_manifest_above_the_size_limit_is_an_error(tmp_path: Path) -> None:
    """It was read to the limit and no further, and what was cut off was never missed."""
    (tmp_path / "workspace.json").write_bytes(msgspec.json.encode(FULL) + b" " * (8 << 20))
    with pytest.raises(ServiceError):
        read_manifest(tmp_path)


def test_writing_that_fails_keeps_the_old_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, FULL)

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError):
        write_manifest(tmp_path, WorkspaceManifest())
    monkeypatch.undo()
    assert read_manifest(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["workspace.json"]
