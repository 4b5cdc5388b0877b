"""The short form of `python -m tests.fuzz.corpus`: ordinary text arrives byte for byte."""

from __future__ import annotations

from random import Random

from ambient_runner.projections.redaction import Secrets
from tests.fuzz.corpus import Document, build_corpus, find_changes, known_secrets


def test_ordinary_text_arrives_byte_for_byte_whole_and_in_deltas() -> None:
    rng = Random(2)
    secrets = Secrets(planted.credential for planted in known_secrets(rng))
    changes = [change for document in build_corpus(rng, 400_000) for change in find_changes(document, secrets, rng)]
    assert [(change.document.name, change.way, change.around) for change in changes] == []


def test_a_changed_document_is_noticed_in_every_way() -> None:
    rng = Random(3)
    document = Document(kind="chat", name="chat", text="the key is 9fK2qLw7-xYzT5, keep it")
    assert [change.way for change in find_changes(document, Secrets(["9fK2qLw7-xYzT5"]), rng)] == [
        "whole",
        "text",
        "arguments",
    ]
