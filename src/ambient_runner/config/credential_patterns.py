"""Shapes of well-known credentials: keys of providers, tokens, private keys, URLs with passwords, Authorization headers.

The patterns are data. Each names the literals that it cannot match without, so that a text without them costs one search for all patterns
together (`projections.redaction`), and each has examples that it must and must not match. Quantifiers are possessive (`++`, `{16,}+`): a
pattern never goes back, and its time is linear. A credential may follow an escape (`\\n`, `%20`) of the text it is in.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from ambient_runner.config.private_patterns import private_key_pattern
from ambient_runner.config.secret_patterns import SecretPattern

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECRET_PATTERNS", "find_pattern_values"]

_ESCAPE = r"(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
_WORD_START = rf"(?:(?<![A-Za-z0-9])|{_ESCAPE})"
_RUN_START = rf"(?:(?<![A-Za-z0-9_-])|{_ESCAPE})"
"""The start of what a token with dashes is made of: then no part of one run is searched twice, and the time stays linear."""
_LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8"  # Examples are made of these: none is a credential of anyone.


def _fill(length: int, alphabet: str = _LETTERS) -> str:
    """Return characters for an example."""
    return (alphabet * (length // len(alphabet) + 1))[:length]


def _token(name: str, prefixes: tuple[str, ...], rest: str, body: str = _fill(40), *others: str) -> SecretPattern:
    """Return the pattern of a token: a prefix and what follows it. `others` must not match."""
    start = "|".join(re.escape(prefix) for prefix in prefixes)
    before = _RUN_START if "_-]" in rest else _WORD_START
    return SecretPattern(
        name=name,
        literals=prefixes,
        shape=re.compile(f"{before}(?:{start}){rest}"),
        is_random=True,
        examples=tuple(prefix + body for prefix in prefixes),
        counterexamples=(*(prefix + "x" for prefix in prefixes), *others),
    )


_QUOTE = r"(?:\\*+[\"'])?+"
_IS = rf"{_QUOTE}\s*+(?:[:=,]\s*+(?:{_QUOTE}(?i:value){_QUOTE}\s*+:\s*+)?+|[|>]\s*+)(?:b(?=\\*+[\"']))?+{_QUOTE}"
"""The text between the name of a header and its value: in code, in JSON, in XML, in a table."""
_TWO_DIGITS = r"(?=[A-Za-z_~+/=-]*+[0-9][A-Za-z_~+/=-]*+[0-9])"
_NOT_CODE = r"(?![(\[]|\.\w)"
"""Text that does not follow a value, but a name in code: a call, an index or an attribute. A sentence may end after a value."""
_VARIABLE = r"\$(?:[({]|(?:[A-Z_][A-Z0-9_]*+|[a-z_][a-z0-9_]*+|[A-Za-z_]++[0-9]?+)(?![A-Za-z0-9]))"
_DATABASES = (
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "mongodb",
    "mongodb+srv",
    "redis",
    "rediss",
    "amqp",
    "amqps",
)
_DATABASE = "|".join(f"(?<={re.escape(name)})" for name in _DATABASES)

SECRET_PATTERNS: tuple[SecretPattern, ...] = (
    _token(
        "aws_access_key_id",
        ("AKIA", "ASIA"),
        r"[A-Z0-9]{16}(?![A-Za-z0-9])",
        _fill(16, "B3DE5GH7"),
        "AKIAB3DE5GH7b3de5gh7",
    ),
    _token(
        "github",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        r"[A-Za-z0-9]{36,}+",
        _fill(36),
        "ghs_thisisalongidentifierofsomethingelsethat",
    ),
    _token(
        "github_fine_grained",
        ("github_pat_",),
        r"[A-Za-z0-9_]{22,}+",
        _fill(82),
        "github_pat_token_validation_regular_expression",
    ),
    _token(
        "gitlab",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-"),
        r"[A-Za-z0-9_-]{20,}+",
        _fill(20),
        "gldt-data-table-with-rows-and-columns",
    ),
    _token(
        "slack",
        ("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
        r"[A-Za-z0-9-]{20,}+",
        _fill(40),
        "xapp-this-is-the-name-of-an-application-in-k8s",
    ),
    _token(
        "stripe",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        r"[A-Za-z0-9]{16,}+",
        _fill(24),
        "sk_live_integrationtestcases",
        "sk_test_thisisatestofpayments",
    ),
    _token(
        "anthropic",
        ("sk-ant-",),
        r"[A-Za-z0-9_-]{20,}+",
        _fill(90),
        "sk-ant-colony-optimization-algorithm-in-python",
    ),
    _token(
        "openai",
        ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-", "sk-lf-"),
        r"[A-Za-z0-9_-]{20,}+",
        _fill(90),
        "sk-admin-dashboard-users-and-permissions-page",
    ),
    _token(
        "openai_old",
        ("sk-",),
        r"[A-Za-z0-9]{32,}+",
        _fill(48),
        "task-" + _fill(48),
        "sk-rate-limits-of-the-service-are-low",
        "sk-thisisalongclassnamewithoutanydashesinside",
    ),
    _token("google_api_key", ("AIza",), r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])", _fill(35)),
    _token(
        "google_oauth",
        ("ya29.", "GOCSPX-"),
        r"[A-Za-z0-9_-]{20,}+",
        _fill(40),
        "ya29.thisIsAnIdentifierOfSomething_else_here",
    ),
    _token(
        "hugging_face",
        ("hf_",),
        r"[A-Za-z]{30,}+(?![0-9_])",
        _fill(34, "aBdEgHjKmN"),
        "hf_thisisjustalongidentifierofsomethingelseinthecode",
        "hf_ThisIsJustALongIdentifierOfSomethingElse",
    ),
    _token(
        "npm",
        ("npm_",),
        r"[A-Za-z0-9]{36}(?![A-Za-z0-9])",
        _fill(36),
        "npm_configregistryurlpackagelockdependen",
    ),
    _token("pypi", ("pypi-AgEI",), r"[A-Za-z0-9_-]{50,}+", _fill(80)),
    _token(
        "sendgrid",
        ("SG.",),
        r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
        f"{_fill(22)}.{_fill(43)}",
        "SG.thisIsAnIdentifierOfAB.someOtherLongIdentifierThatIsAMethodOfSome1",
    ),
    _token("digitalocean", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[a-f0-9]{64}", _fill(64, "a1b2c3d4e5f60987")),
    _token(
        "groq",
        ("gsk_",),
        r"[A-Za-z0-9]{40,}+",
        _fill(52),
        "gsk_renderernodecontainerwidgetshadowblurroundedclip",
    ),
    _token(
        "xai",
        ("xai-",),
        r"[A-Za-z0-9]{60,}+",
        _fill(80),
        "xai-thisisaverylongidentifierofexplainableartificialintelligencemodules",
    ),
    dataclasses.replace(
        _token(
            "jwt",
            ("eyJ",),
            r"[A-Za-z0-9_-]{8,}+\.(?:eyJ[A-Za-z0-9_.-]*+|[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_.-]*+)",
            f"{_fill(20)}.{_fill(40)}.{_fill(43)}",
            "eyJhbGciOiJIUzI1NiJ9",
        ),
        decided_within=768,
    ),
    SecretPattern(
        name="aws_secret_access_key",
        literals=(
            *("secret_access_key", "SECRET_ACCESS_KEY", "secretAccessKey", "SecretAccessKey"),
            *("secret_key", "SECRET_KEY", "secretKey", "SecretKey"),
        ),
        shape=re.compile(
            rf"(?:secret_(?:access_)?+key|SECRET_(?:ACCESS_)?+KEY|[sS]ecret(?:Access)?+Key){_IS}"
            r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
        ),
        has_fixed_start=False,
        examples=(
            f"aws_secret_access_key = {_fill(40)}",
            f'{{"SecretAccessKey": "{_fill(40)}"}}',
            f"| SecretAccessKey | {_fill(40)} |",
            f"<SecretAccessKey>{_fill(40)}</SecretAccessKey>",
            f'secret_key = "{_fill(40)}"',
        ),
        counterexamples=(
            "aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']",
            "secret_key = get_secret_key_from_the_environment_or_file()",
            f"secret_key = {_fill(39)}",
        ),
    ),
    SecretPattern(
        name="azure_storage",
        literals=("AccountKey=",),
        shape=re.compile(r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)"),
        has_fixed_start=False,
        examples=(f"AccountName=a;AccountKey={_fill(86)}==;",),
        counterexamples=("AccountKey=<key>",),
    ),
    SecretPattern(
        name="slack_webhook",
        literals=("hooks.slack.com",),
        shape=re.compile(
            r"hooks\.slack\.com(?:\\*+/|%2[Ff])services(?P<secret>(?:(?:\\*+/|%2[Ff])[A-Za-z0-9]{8,}+){3})"
        ),
        has_fixed_start=False,
        examples=(f"https://hooks.slack.com/services/T{_fill(8)}/B{_fill(8)}/{_fill(24)}",),
        counterexamples=("https://hooks.slack.com/services/T000/B000/XXX",),
    ),
    private_key_pattern(_fill(64), _fill(20)),
    SecretPattern(
        name="url_password",
        literals=("://", ":\\"),
        shape=re.compile(
            rf":(?:\\*+/){{2}}[^\s:/?#@\"'<>\\]{{0,128}}+:(?P<secret>(?!{_VARIABLE})[!$-.0-;=A-\[\]-~@]{{6,256}})@(?=[A-Za-z0-9\[_.-])"
        ),
        has_fixed_start=False,
        examples=(
            f"postgresql://app:{_fill(16)}@db.example:5432/app",
            f"https:\\/\\/a:{_fill(9)}%40{_fill(9)}@git.example\\/a.git",
            f"https://a:${_fill(12)}@git.example/a.git",
        ),
        counterexamples=(
            "postgres://user:password@localhost/db",
            "https://example.com:8080/@scope/name",
            "redis://:${PASSWORD}@r",
            "https://a:$PASSWORD_2@git.example",
            "https://a:$gitPassword2@git.example",
            "https://a:$git_password.x@git.example",
        ),
    ),
    SecretPattern(
        name="database_password",
        literals=("://", ":\\"),
        shape=re.compile(
            rf"(?:{_DATABASE}):(?:\\*+/){{2}}[^\s:/?#@\"'<>\\]{{0,128}}+:(?P<secret>(?!{_VARIABLE}|[0-9]{{1,5}}+(?:\\*+/|[?#,]))"
            r"(?:[!#-&(-9;=?-\[\]-~\u00a1-\u024f]|:(?!\\*+/\\*+/)|\\{1,16}+(?:/|u0[0-2][0-9A-Fa-f]{2})){6,256})@(?=[A-Za-z0-9\[_.-])"
        ),
        has_fixed_start=False,
        examples=tuple(f"postgres://app:{_fill(6)}{char}{_fill(6)}@db.example/app" for char in "/#?é"),
        counterexamples=(
            "redis://cache:6379/0?from=a@b.example",
            "postgres://db:5432#a@b.example",
            "mongodb://one:27017,two:27017/?appName=@cluster",
            "postgres://user:$DB_PASSWORD/x@localhost",
        ),
    ),
    SecretPattern(
        name="url_password_encoded",
        literals=("%3A%2F%2F", "%3a%2f%2f"),
        shape=re.compile(
            r"%3[Aa]%2[Ff]%2[Ff](?:[A-Za-z0-9._~-]|%2[0-9Bb]){0,128}+%3[Aa](?P<secret>(?:[A-Za-z0-9._~+!*()-]|%(?!40|3[Aa]|2[Ff])){6,256}+)%40"
        ),
        has_fixed_start=False,
        examples=(f"url=postgresql%3A%2F%2Fapp%3A{_fill(16)}%40db.example%3A5432",),
        counterexamples=("url=https%3A%2F%2Fexample.com%3A8080%2F%40scope",),
    ),
    SecretPattern(
        name="authorization_header",
        literals=("uthorization", "UTHORIZATION"),
        shape=re.compile(
            rf"(?i:uthorization){_IS}(?:(?i:bearer|basic|token|apikey|api-key|jwt|digest|negotiate)(?:\s|%20|\+)++"
            rf"(?=[A-Za-z0-9._~+/=%-]{{12}})|(?={_TWO_DIGITS}[A-Za-z0-9_]{{20,}}+{_NOT_CODE}(?![/-])))"
            r"(?P<secret>[A-Za-z0-9._~+/=%-]++)"
        ),
        has_fixed_start=False,
        examples=(
            f"Authorization: Bearer {_fill(24)}",
            f'{{"authorization": "Basic {_fill(24)}=="}}',
            f"(b'authorization', b'Bearer {_fill(24)}')",
            f'{{"name": "Authorization", "value": "Bearer {_fill(24)}"}}',
            f"<Authorization>Bearer {_fill(24)}</Authorization>",
            f"Authorization: JWT {_fill(24)}",
            f"Authorization: Digest {_fill(24)}",
            f"Authorization: {_fill(24)}",
            f"Send Authorization: {_fill(24)}.",
        ),
        counterexamples=(
            "Authorization: Bearer <token>",
            "authorization: Bearer $TOKEN",
            "Authorization: Basic authentication",
            "authorization = read_authorization_header_v2_or_v3(request)",
            "authorization: self.settings.authorization_2_of_3",
            "Authorization: Digest username=alice",
        ),
    ),
    SecretPattern(
        name="key_header",
        literals=(
            *("-Api-Key", "-api-key", "-API-Key", "-API-KEY", "-Auth-Token", "-auth-token", "-AUTH-TOKEN"),
            *("Private-Token", "private-token", "PRIVATE-TOKEN"),
        ),
        shape=re.compile(
            rf"(?i:-api-key|-auth-token|private-token){_IS}(?P<secret>{_TWO_DIGITS}[A-Za-z0-9_~+/=-]{{16,}}+){_NOT_CODE}"
        ),
        has_fixed_start=False,
        examples=(
            f"X-Api-Key: {_fill(24)}",
            f'{{"name": "x-api-key", "value": "{_fill(24)}"}}',
            f"-H 'PRIVATE-TOKEN: {_fill(24)}'",
            f"(b'X-Auth-Token', b'{_fill(24)}')",
            f"Send X-Api-Key: {_fill(24)}.",
        ),
        counterexamples=(
            "X-Api-Key: <your key>",
            "'x-api-key': settings.api_key_v2_of_3",
            "'x-api-key': get_api_key_v2_of_v3(request)",
            "x-api-key: your-api-key-number-12",
        ),
    ),
)


def find_pattern_values(text: str) -> Iterator[str]:
    """Yield the secret parts of a text that a pattern knows."""
    for pattern in SECRET_PATTERNS:
        if any(literal in text for literal in pattern.literals):
            yield from (text[start:stop] for start, stop, _ in pattern.find_from(text))
