"""The routes of files: what is brought to an agent, and what it has made."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.server.demo_server import error_of
from tests.server.worker import WorkerBridge
from tests.services.world import BYTES, ending, server, settings_of, talk


async def test_files_are_uploaded_listed_downloaded_and_deleted_and_the_agent_is_informed(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path, default_thread="t")) as client:
        put = await client.post("/files", params={"name": "übersicht.csv"}, content=b"a,b\n", headers=BYTES)
        await client.post("/files", params={"name": "b.txt"}, content=b"bb", headers=BYTES)
        await talk(client, "hello", "u1")
        listed = (await client.get("/files")).json()["files"]
        fetched = await client.get("/files/übersicht.csv")
        deleted = await client.delete("/files/b.txt")
        gone = await client.delete("/files/b.txt")
        left = (await client.get("/files")).json()["files"]
    assert (put.status_code, put.json()["path"], put.json()["size"]) == (201, "übersicht.csv", 4)
    assert [(file["path"], file["size"]) for file in listed] == [("b.txt", 2), ("übersicht.csv", 4)]
    assert fetched.content == b"a,b\n"
    assert (deleted.json(), error_of(gone)) == ({"name": "b.txt", "deleted": True}, (404, "unknown_file"))
    assert [file["path"] for file in left] == ["übersicht.csv"]
    assert "- b.txt\n- übersicht.csv" in bridge.contexts[0].system_prompt_append


async def test_artifacts_go_out_as_bytes_and_never_from_outside_the_workspace(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    (tmp_path / "outside").write_text("secret of the machine")
    async with server(bridge, settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        artifacts = Path(bridge.contexts[0].cwd_path)
        (artifacts / "sub").mkdir()
        (artifacts / "sub" / "page.html").write_text("<script>alert(1)</script>")
        (artifacts / "link").symlink_to(tmp_path / "outside")
        (artifacts / "up").symlink_to(tmp_path)
        listed = (await client.get("/artifacts")).json()["files"]
        fetched = await client.get("/artifacts/sub/page.html")
        escapes = [
            await client.get(f"/artifacts/{path}")
            for path in ("link", "up/outside", "..%2F..%2Foutside", "sub/..%2F..%2Fworkspace.json", "sub", "%00")
        ]
    assert [file["path"] for file in listed] == ["sub/page.html"]
    assert fetched.text == "<script>alert(1)</script>"
    assert {
        name: fetched.headers[name] for name in ("content-type", "x-content-type-options", "content-disposition")
    } == {
        "content-type": "application/octet-stream",
        "x-content-type-options": "nosniff",
        "content-disposition": "attachment; filename*=UTF-8''page.html",
    }
    assert {one.status_code for one in escapes} <= {404, 422}
    assert [one.text for one in escapes if "secret of the machine" in one.text] == []


async def test_uploads_are_bytes_with_a_name(tmp_path: Path) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        nameless = await client.post("/files", content=b"x", headers=BYTES)
        form = await client.post("/files?name=a", content=b"x", headers={"content-type": "text/plain"})
        packed = await client.post("/files?name=a", content=b"x", headers={**BYTES, "content-encoding": "gzip"})
        names = [
            await client.post("/files", params={"name": name}, content=b"x", headers=BYTES)
            for name in ("../x", "a/b", ".hidden", "-x", "a\nb", "x" * 300)
        ]
        listed = (await client.get("/files")).json()
    assert (error_of(nameless), error_of(form), error_of(packed)) == (
        (422, "invalid_input"),
        (415, "wrong_type"),
        (415, "wrong_type"),
    )
    assert {error_of(one) for one in names} == {(422, "invalid_input")}
    assert listed == {"files": []}


async def test_a_name_that_is_no_text_is_listed_all_the_same(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        workspace = Path(bridge.contexts[0].workspace_path)
        for directory in ("artifacts", "file-uploads"):
            Path(os.fsdecode(os.fsencode(workspace / directory) + b"/caf\xe9")).write_text("x")
        listed = [await client.get(path) for path in ("/artifacts", "/files")]
        fetched = await client.get("/artifacts/caf%5Cxe9")
        after = await talk(client, "again", "u2")
    assert [[file["path"] for file in one.json()["files"]] for one in listed] == [["caf\\xe9"]] * 2
    assert error_of(fetched) == (422, "invalid_input")
    assert ending(after) == ("RUN_FINISHED", "success")


async def test_readers_of_the_thread_are_informed_of_uploads_and_deletions(tmp_path: Path) -> None:
    async with server(WorkerBridge(mcp=False), settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        await client.post("/files", params={"name": "a.csv"}, content=b"a,b\n", headers=BYTES)
        await client.delete("/files/a.csv")
        stream = await client.get(
            "/threads/t/events", params={"until": "idle"}, headers={"accept": "application/x-ndjson"}
        )
    events = [json.loads(line) for line in stream.text.splitlines()]
    assert [(event["name"], event["value"]) for event in events[-2:]] == [
        ("ambient:file_uploaded", {"name": "a.csv", "size": 4}),
        ("ambient:file_deleted", {"name": "a.csv"}),
    ]
