"""The parts of a structured credential are secrets by themselves; what it names in public is not."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from urllib.parse import quote

import pytest

from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets
from ambient_runner.projections.redaction.credential_parts import secret_parts


def random_text(length: int, alphabet: str = string.ascii_letters + string.digits + "+/") -> str:
    return "".join(random.Random(length).choices(alphabet, k=length))


LINES = [random_text(64)[at:] + random_text(64)[:at] for at in range(8)]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *LINES, "bQ9==", "-----END PRIVATE KEY-----", ""])
ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "project_id": "weather",
        "private_key_id": "3f9c1a77be02d4",
        "private_key": PEM,
        "client_email": "weather@example.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
)


def test_half_the_password_of_a_long_url_is_not_told_from_another() -> None:
    """The rest of it is no secret, so a piece of the URL that ends inside of the password would be guessed character by character."""
    url = "postgresql+asyncpg://reporting-service:{}@reports-primary.db.internal.example:5432/analytics?sslmode=require"
    redactor = Redactor(Secrets([url.format("tR8mN3vBq1")], patterns=()))
    for length in range(10):
        guess = url.format("tR8mN3vBq1"[:length]).partition("@")[0]
        assert redactor.redact_text(guess) == guess
    expected = url.format(REDACTED)
    assert redactor.redact_text(url.format("tR8mN3vBq1")) == expected


@pytest.mark.parametrize("part", [PEM, PEM.replace("\n", "\\n").strip(), LINES[3], "\n".join(LINES[5:])])
def test_a_key_in_one_line_with_escaped_breaks_is_found_as_the_file_it_was(part: str) -> None:
    text = Redactor(Secrets([PEM.strip().replace("\n", "\\n")], patterns=())).redact_text(part)
    assert [line for line in LINES if line in text] == []


@pytest.mark.parametrize("part", [PEM, json.dumps(PEM)[1:-1], LINES[3], "".join(LINES), "3f9c1a77be02d4"])
def test_the_members_of_a_granted_service_account_are_found_alone(part: str) -> None:
    redacted = Redactor([ACCOUNT]).redact_text(f"the key is {part} .")
    assert redacted.startswith("the key is ")
    assert not any(line in redacted for line in (*LINES, "3f9c1a77be02d4"))


@pytest.mark.parametrize(
    "encode",
    [
        lambda line: base64.b64encode(line).decode(),
        lambda line: base64.b64encode(b"x" + line + b"yz").decode(),
        bytes.hex,
        quote,
    ],
)
def test_one_line_of_a_long_key_is_found_in_every_encoding(encode: Callable[[bytes], str]) -> None:
    rng = random.Random(1)
    lines = ["".join(rng.choices(string.ascii_letters + string.digits + "+/", k=64)) for _ in range(50)]
    redactor = Redactor(["\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])])
    for line in lines:
        encoded = encode(line.encode())
        assert len(redactor.redact_text(encoded)) < len(REDACTED) + 10, encoded


def test_what_a_credential_names_in_public_is_not_redacted() -> None:
    public = "service_account weather weather@example.iam.gserviceaccount.com https://oauth2.googleapis.com/token private_key"
    assert Redactor([ACCOUNT]).redact_text(public) == public


def test_the_values_of_dotenv_lines_are_found_alone() -> None:
    credential = "# of staging\nexport API_KEY='9fK2qLw7-xYz'\nHOST=example\nDB_PASSWORD=\"tR8mN3vB q1\"\n"
    assert secret_parts(credential) == {"9fK2qLw7-xYz", "tR8mN3vB q1"}


@pytest.mark.parametrize(
    ("credential", "part"),
    [
        ("Bearer 9fK2qLw7xYzT5", "9fK2qLw7xYzT5"),
        ("Basic " + base64.b64encode(b"app:9fK2qLw7").decode(), base64.b64encode(b"app:9fK2qLw7").decode()),
        ("postgresql://app:9fK2qLw7%40xYz@db.example/app", "9fK2qLw7@xYz"),
        ("postgresql://app:9fK2$qLw7xYz@db.example/app", "9fK2$qLw7xYz"),
        ("host=db.example user=app password=Hq82LzPw93Kd dbname=app", "Hq82LzPw93Kd"),
        ("Server=db;User Id=sa;Password=Yt6Rw2Qp9Lk4;Encrypt=yes", "Yt6Rw2Qp9Lk4"),
        ("app:Vn38XqTz61Lm@tcp(db.example:3306)/app", "Vn38XqTz61Lm"),
    ],
)
def test_the_token_of_a_header_and_the_password_of_a_connection_are_found_alone(credential: str, part: str) -> None:
    redacted = Redactor([credential]).redact_text(f"{part}, {credential}")
    assert redacted.startswith(f"{REDACTED}, ")
    assert part not in redacted


def test_a_member_named_key_is_no_secret_unless_it_is_random() -> None:
    credential = json.dumps([{"key": "environment", "value": "production"}, {"key": "9fK2qLw7xYzT5"}])
    assert secret_parts(credential) == {"9fK2qLw7xYzT5"}


def test_a_weak_password_of_a_credential_file_is_a_secret_in_whatever_case_its_name_is_written() -> None:
    credential = json.dumps({"clientSecret": "summer2026", "clientName": "weathermap", "refreshToken": "winter2025"})
    assert secret_parts(credential) == {"summer2026", "winter2025"}


ACCOUNT_KEY = random_text(86) + "=="
CONNECTIONS = {
    f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={ACCOUNT_KEY};EndpointSuffix=core.windows.net": ACCOUNT_KEY,
    "host=db.internal port=5432 user=app_production dbname=orders password=Hq82LzPw93Kd sslmode=require": "Hq82LzPw93Kd",
    "Server=tcp:acme.database.windows.net;Initial Catalog=warehouse;User ID=warehouse_reader;Password=Yt6Rw2Qp9Lk4;": "Yt6Rw2Qp9Lk4",
    "Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=Zk29XqTz61Lm77Wp": (
        "Zk29XqTz61Lm77Wp"
    ),
    "https://hooks.example.com/services/incoming/notifications/9fK2qLw7xYzT5bR8mN3vB": "9fK2qLw7xYzT5bR8mN3vB",
}


@pytest.mark.parametrize(("connection", "secret"), CONNECTIONS.items())
def test_the_ordinary_parts_of_a_connection_string_are_not_redacted(connection: str, secret: str) -> None:
    redactor = Redactor([connection])
    ordinary = connection.replace(secret, "")
    for part in (*re.split(r"[; ]", ordinary), ordinary, *re.findall(r"[A-Za-z0-9.-]+", ordinary)):
        assert redactor.redact_text(part) == part
    for encode in (str, lambda text: json.dumps(text)[1:-1], quote, lambda text: text.encode().hex()):
        redacted = redactor.redact_text(encode(connection))
        assert REDACTED in redacted
        assert encode(secret) not in redacted


def test_a_dsn_without_a_secret_key_is_redacted_whole_only() -> None:
    dsn = "https://public@o12.ingest.sentry.io/34"
    redactor = Redactor([dsn])
    assert redactor.redact_text(f"{dsn} is on o12.ingest.sentry.io") == f"{REDACTED} is on o12.ingest.sentry.io"


@pytest.mark.parametrize("value", ["aaaaaaaaaaaa", "--------", "1234567890", "abababababab"])
def test_a_repeated_character_or_a_sequence_is_never_replaced(value: str) -> None:
    assert Redactor([value]).redact_text(f"| {value} |") == f"| {value} |"


def test_a_value_learned_in_a_run_is_searched_for_in_all_forms() -> None:
    secrets = Secrets([]).copy_for_run()
    secrets.add([ACCOUNT])
    assert LINES[0] not in Redactor(secrets).redact_text(PEM)
    assert base64.b64encode(PEM.encode()).decode()[400:500] not in Redactor(secrets).redact_text(
        base64.b64encode(PEM.encode()).decode()
    )
