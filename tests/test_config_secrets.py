"""Variables that are secrets, values that are too easy to guess, and the shapes of credentials."""

from __future__ import annotations

import base64
import json
import random
import string
import struct

import pytest

from ambient_runner.config import SECRET_PATTERNS, SecretPattern, estimate_bits, is_guessable, read_settings
from ambient_runner.config.guessability import consists_of_words
from ambient_runner.config.secret_values import is_secret_name
from ambient_runner.config.streamed_values import TOKEN_SYMBOLS
from ambient_runner.errors import ConfigError
from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets

STRONG = "9fK2qLw7-xYz41"
EXAMPLES = [(pattern, example) for pattern in SECRET_PATTERNS for example in pattern.examples]


@pytest.mark.parametrize(
    "name",
    [
        *("PGPASSWORD", "MYSQL_PWD", "DB_PASSWD", "GITHUB_PAT", "OPENAI_APIKEY", "SENTRY_DSN", "AWS_ACCESS_KEY_ID"),
        *("API_KEY", "github_token", "CLIENT_SECRET", "APP_CREDENTIALS", "DB_PASS", "SSH_PASSPHRASE", "MY_DSN_TOKEN"),
        *("TOKEN", "SECRET", "PASS", "PASSWORD", "CREDENTIALS", "KEY", "PAT", "DSN", "token"),
        *("SECRET_KEY_BASE", "STRIPE_KEY_LIVE", "OPENAI_API_KEY_2", "API_KEYS", "DB_PW", "AWS_CREDS", "JWT_SECRETS"),
        *("APITOKEN", "ACCESSTOKEN", "CLIENTSECRET", "AUTH_TOKEN", "SECRETKEY", "ACCESSKEY", "PRIVATEKEY"),
        *(
            "clientSecret",
            "refreshToken",
            "privateKey",
            "apiKey",
            "accessKeyId",
            "api-key",
            "spring.datasource.password",
        ),
    ],
)
def test_a_variable_is_a_secret_by_its_name(name: str) -> None:
    assert is_secret_name(name)
    assert read_settings(environ={name: STRONG}).secrets == (STRONG,)


@pytest.mark.parametrize(
    "name",
    [
        *("PWD", "OLDPWD", "HOME", "MONKEY", "HOTKEY", "TOKENS", "KEYBOARD", "TOKENIZERS_PARALLELISM", "MAX_TOKENS"),
        *("PUBLIC_KEY", "STRIPE_PUBLISHABLE_KEY", "MONKEY_2", "TEST", "LIVE_1"),
        *(
            "TRESPASS",
            "BYPASS",
            "SECRETARY",
            "SPAT",
            "keyboard",
            "monkey",
            "tokenType",
            "PASS_THROUGH",
            "KEY_VAULT_NAME",
        ),
    ],
)
def test_other_variables_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
    assert read_settings(environ={name: STRONG}).secrets == ()


@pytest.mark.parametrize(
    "path", ["/etc/ssl/private/server.key", "~/.config/gcloud/credentials.json", "./secrets/api.pem"]
)
def test_the_path_of_a_file_is_no_secret(path: str) -> None:
    assert read_settings(environ={"SSL_KEY": path, "API_KEY": STRONG}).secrets == (STRONG,)


@pytest.mark.parametrize("value", [f"/{STRONG}/{STRONG}", "/s5WRh*.Z", "/aB3/dE5/gH7/jK9/mN1", "~/x8/Kq2m/Vz"])
def test_a_random_value_with_slashes_is_no_path(value: str) -> None:
    assert read_settings(environ={"API_KEY": value}).secrets == (value,)


def test_the_password_of_a_url_in_any_variable_is_a_secret() -> None:
    environ = {"DATABASE_URL": "postgresql://app:tR8mN3vB%40q1Z@db.example/app"}
    assert read_settings(environ=environ).secrets == ("tR8mN3vB%40q1Z", "tR8mN3vB@q1Z")


@pytest.mark.parametrize(
    "value",
    [
        *("password", "--------", "aaaaaaaaaa", "summer2026", "Summer2026!", "letmein123", "12345678"),
        *("postgres", "rabbitmq", "clickhouse", "localhost1", "postgres123", "P@ssw0rd!", "p4ssw0rd2026"),
    ],
)
def test_a_guessable_value_is_no_secret_by_name_alone_and_is_reported(value: str) -> None:
    settings = read_settings(environ={"DB_PASSWORD": value, "API_KEY": STRONG})
    assert is_guessable(value)
    assert (settings.secrets, settings.guessable_secrets) == ((STRONG,), ("DB_PASSWORD",))


def test_a_secret_variable_that_is_too_short_to_be_redacted_is_reported() -> None:
    settings = read_settings(environ={"DB_PASSWORD": "aZ7$kQ9", "PIN_TOKEN": "1", "EMPTY_TOKEN": "", "API_KEY": STRONG})
    assert (settings.secrets, settings.short_secrets) == ((STRONG,), ("DB_PASSWORD", "PIN_TOKEN"))


def test_strict_secrets_refuse_a_guessable_value_and_name_its_variable() -> None:
    with pytest.raises(ConfigError, match="DB_PASSWORD"):
        read_settings(environ={"DB_PASSWORD": "summer2026", "AMBIENT_SECRETS_STRICT": "on"})


def test_a_variable_named_as_a_secret_is_one_even_if_it_is_guessable() -> None:
    settings = read_settings(environ={"DB_PASSWORD": "summer2026", "AMBIENT_SECRET_NAMES": "DB_PASSWORD"})
    assert (settings.secrets, settings.guessable_secrets) == (("summer2026",), ())


@pytest.mark.parametrize("password", ["Xk9$mQ2vR7zLp", "Xk9*mQ2v{R7z}", "Xk9!mQ2v;R7z"])
def test_the_password_of_a_url_may_have_any_symbol(password: str) -> None:
    assert password in read_settings(environ={"DATABASE_URL": f"postgresql://app:{password}@db.example/app"}).secrets
    assert password not in Redactor([]).redact_text(f"see postgresql://app:{password}@db.example/app .")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Authorization: Bearer YOUR_API_KEY",
            "Authorization: Bearer your-token-here",
            "Bearer process.env.API_TOKEN",
        ),
        *(
            "postgres://postgres:YOUR_DB_PASSWORD@localhost/db",
            "redis://:${REDIS_PASSWORD}@r",
            "amqp://a:{{ password }}@b",
        ),
        *("sk-" + "x" * 48, "ghp_" + "x" * 36, "sk-proj-your-openai-api-key-goes-here", "AKIAIOSFODNN7EXAMPLE"),
        *("xoxb-your-slack-bot-token-here", "https://example.com:请联系管理员张三李四@运维团队"),
    ],
)
def test_a_placeholder_in_code_or_documentation_stays(text: str) -> None:
    assert Redactor([]).redact_text(text) == text


@pytest.mark.parametrize(
    "value", ["zebra lamp onyx quill", "9fK2;qLw7;xYz4", "9fK2(qLw7)xYz4", "9fKüqLw7éxYz4", "9fK2'qLw7"]
)
def test_a_secret_of_short_runs_is_reported_as_not_found_in_every_stream(value: str) -> None:
    settings = read_settings(environ={"DB_PASSWORD": value, "API_KEY": STRONG})
    assert settings.split_secrets == ("DB_PASSWORD",)


def test_a_secret_of_the_symbols_that_the_advice_names_is_not_reported() -> None:
    settings = read_settings(environ={"DB_PASSWORD": f"{TOKEN_SYMBOLS}9fK", "API_KEY": f"9fK{TOKEN_SYMBOLS}"})
    assert settings.split_secrets == ()


@pytest.mark.parametrize("value", [STRONG, "deadbeefcafe1234", "kT9#pL2$wQ", "xkqjzpvwmrtb", "sk-test-of-many-words"])
def test_random_values_are_not_guessable(value: str) -> None:
    assert estimate_bits(value) >= 32


@pytest.mark.parametrize(("pattern", "example"), EXAMPLES, ids=[f"{pattern.name}" for pattern, _ in EXAMPLES])
def test_a_credential_of_a_known_shape_is_replaced_in_text_and_in_json(pattern: SecretPattern, example: str) -> None:
    redactor = Redactor([])
    secret = next(example[start:stop] for start, stop, _ in pattern.find_from(example))
    for text in (example, f"see {example} .", json.dumps({"k": f"a\n{example}"}), json.dumps(json.dumps([example]))):
        assert secret not in redactor.redact_text(text)
        assert REDACTED in redactor.redact_text(text)


@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize(("pattern", "example"), EXAMPLES, ids=[f"{pattern.name}" for pattern, _ in EXAMPLES])
def test_many_backslashes_of_nested_json_do_not_make_a_credential_a_placeholder(
    pattern: SecretPattern, example: str, depth: int
) -> None:
    secret = next(example[start:stop] for start, stop, _ in pattern.find_from(example))
    for _ in range(depth):
        example, secret = (json.dumps(text)[1:-1].replace("/", "\\/") for text in (example, secret))
    redacted = Redactor([]).redact_text(example)
    assert REDACTED in redacted
    assert secret not in redacted


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("pattern", [one for one in SECRET_PATTERNS if one.has_fixed_start], ids=lambda one: one.name)
def test_a_credential_with_a_known_start_is_replaced_inside_base64_and_hex(pattern: SecretPattern, before: int) -> None:
    data = b"x: "[before:] + pattern.examples[0].encode() + b" ..."
    for encoded in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()):
        redacted = Redactor([]).redact_text(encoded)
        assert REDACTED in redacted
        assert len(redacted) < len(encoded) - len(pattern.examples[0]) + 30


@pytest.mark.parametrize("pattern", SECRET_PATTERNS, ids=lambda one: one.name)
def test_what_only_resembles_a_credential_stays(pattern: SecretPattern) -> None:
    for text in pattern.counterexamples:
        assert Redactor([]).redact_text(text) == text


def test_an_unencrypted_ssh_key_is_no_placeholder_although_it_has_rows_of_one_letter() -> None:
    fields = b"".join(struct.pack(">I", len(field)) + field for field in (b"none", b"none", b"", b"\0\0\0\1"))
    body = base64.b64encode(b"openssh-key-v1\0" + fields + random.Random(3).randbytes(300)).decode()
    lines = [body[at : at + 70] for at in range(0, len(body), 70)]
    key = "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----"])
    assert "AAAAAA" in body
    assert [line for line in lines if line in Redactor(Secrets(())).redact_text(key)] == []


def test_a_long_token_is_no_placeholder_because_of_a_word_in_it() -> None:
    token = f"sk-ant-api03-{STRONG * 3}yOur{STRONG}"
    assert Redactor(Secrets(())).redact_text(token) == REDACTED


def test_an_operators_own_patterns_are_searched_for_too() -> None:
    settings = read_settings(environ={"AMBIENT_SECRET_PATTERNS": r"acme-[0-9a-f]{12} (?:EMP)\d{6}"})
    redactor = Redactor(Secrets([], patterns=settings.secret_patterns))
    assert (
        redactor.redact_text("acme-0123456789ab of EMP123456 or AKIAB3DE5GH7B3DE5GH7")
        == f"{REDACTED} of {REDACTED} or {REDACTED}"
    )
    assert redactor.redact_value({"k": ["acme-0123456789ab"]}) == {"k": [REDACTED]}


@pytest.mark.parametrize("expression", ["(", r"(a)\1", "a*", "(?=x)"])
def test_a_pattern_that_re2_refuses_or_that_matches_nothing_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="AMBIENT_SECRET_PATTERNS"):
        read_settings(environ={"AMBIENT_SECRET_PATTERNS": expression})


@pytest.mark.parametrize("alphabet", [string.ascii_letters, string.ascii_letters + string.digits + "_-"])
@pytest.mark.parametrize("length", [20, 36])
def test_random_tokens_are_not_taken_for_names_in_code(length: int, alphabet: str) -> None:
    rng = random.Random(length)
    tokens = ["".join(rng.choices(alphabet, k=length)) for _ in range(5000)]
    assert [token for token in tokens if consists_of_words(token)] == []
