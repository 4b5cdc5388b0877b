"""Shapes of well-known credentials: keys of providers, tokens, private keys, URLs with passwords, Authorization headers.

The patterns are data. Each names the literals that it cannot match without, so that a text without them costs one search for all patterns
together (`projections.redaction`), and each has examples that it must and must not match. Quantifiers are possessive (`++`, `{16,}+`): a
pattern never goes back, and its time is linear. A credential may follow an escape (`\\n`, `%20`) of the text it is in.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from ambient_runner.config.guessability import consists_of_words, is_guessable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["SECRET_PATTERNS", "PatternMatch", "SecretPattern", "compile_pattern", "find_pattern_values"]

_ESCAPE = r"(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
_WORD_START = rf"(?:(?<![A-Za-z0-9])|{_ESCAPE})"
_RUN_START = rf"(?:(?<![A-Za-z0-9_-])|{_ESCAPE})"
"""The start of what a token with dashes is made of: then no part of one run is searched twice, and the time stays linear."""
_PLACEHOLDERS = ("your", "example", "placeholder", "process.env", "goeshere", "${", "{{", "****")
"""Texts in what stands for a credential in documentation and code."""
_REPEATED = re.compile(r"([^\\])\1{5}|goes.here")
_CHECKED_CHARS = 256
_MAX_CHECKED = 1024
"""Different matches of one text that are checked. In a text with more of them, each further one is a secret: it consists of credentials."""
_DENSE_CHARS = 8
"""Characters per literal below which a text is searched from end to end, and not at each literal: that costs less."""
_REST_OF_RUN = r"[A-Za-z0-9._~+/=%-]*+"
_LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8"  # Examples are made of these: none is a credential of anyone.


class PatternMatch(NamedTuple):
    """The part of a text that is secret."""

    start: int
    stop: int
    is_open: bool
    """True if the secret reaches the end of the text and may continue in text that follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretPattern:
    """The shape of one kind of credential. The group `secret` is the secret part; without it, the whole match is."""

    name: str
    literals: tuple[str, ...]
    """Every match has one of these where the shape begins. Without literals, every text is searched for the shape itself."""
    shape: re.Pattern[str] = field(compare=False)
    rest: re.Pattern[str] = field(default=re.compile(_REST_OF_RUN), compare=False)
    """Continues an open match in text that follows."""
    decided_within: int = 160
    """Characters after which it is certain that no match begins at a literal."""
    may_be_guessable: bool = False
    """True if any match is a secret, also a guessable one and one that looks like a placeholder."""
    is_random: bool = False
    """True if what follows the literal is random: words are a name in code that happens to begin with it."""
    has_fixed_start: bool = True
    """True if the secret begins with the literal: then it is also found inside base64 and hex."""
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()

    def find_at(self, text: str, literal_starts: Sequence[int]) -> Iterator[PatternMatch]:
        """Yield the matches of a text whose literals were found at these positions, in order."""
        if len(literal_starts) > max(1, (len(text) - literal_starts[0]) // _DENSE_CHARS):
            return self.find_from(text, literal_starts[0])
        return self._select_secrets(self._match_each(text, literal_starts))

    def find_from(self, text: str, start: int = 0) -> Iterator[PatternMatch]:
        """Yield the matches of a text from `start` on, in order."""
        return self._select_secrets(self.shape.finditer(text, start))

    def _match_each(self, text: str, literal_starts: Sequence[int]) -> Iterator[re.Match[str]]:
        stop = 0
        match = self.shape.match
        for at in literal_starts:
            if at >= stop and (found := match(text, at)):
                stop = found.end()
                yield found

    def _select_secrets(self, matches: Iterable[re.Match[str]]) -> Iterator[PatternMatch]:
        """Yield the matches of one text that are secret."""
        group = "secret" if "secret" in self.shape.groupindex else 0
        is_public: dict[str, bool] = {}
        for found in matches:
            start, stop = found.span(group)
            if start == stop:
                continue
            if not self.may_be_guessable and len(is_public) < _MAX_CHECKED:
                secret = found.string[start:stop]
                if secret not in is_public:
                    is_public[secret] = _is_public(secret) or self._is_name(secret)
                if is_public[secret]:
                    continue
            yield PatternMatch(start, stop, found.end() == len(found.string))

    def _is_name(self, secret: str) -> bool:
        if not self.is_random:
            return False
        return any(consists_of_words(secret[len(literal) :]) for literal in self.literals if secret.startswith(literal))


def _is_public(secret: str) -> bool:
    lower = secret[:_CHECKED_CHARS].lower()
    return any(word in lower for word in _PLACEHOLDERS) or _REPEATED.search(lower) is not None or is_guessable(secret)


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


_PEM_BREAK = r"(?:\s|\\+[nr]|%0[AaDd])"
_PEM_TEXT = r"[A-Za-z0-9+/=%]"
_PEM_HEADER = rf"{_PEM_BREAK}*+(?:Proc-Type|DEK-Info): ?[A-Za-z0-9,-]++"
_PEM_LINE = rf"(?:{_PEM_HEADER}|{_PEM_BREAK}*+{_PEM_TEXT}{{16,}}+)"
_PEM_END = rf"(?:{_PEM_BREAK}*+{_PEM_TEXT}{{1,15}}+)?+{_PEM_BREAK}*+"
_SPACE = r"(?:[ +]|%20)"
_QUOTE = r"(?:\\*+[\"'])?+"

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
        literals=("secret_access_key", "SECRET_ACCESS_KEY", "secretAccessKey", "SecretAccessKey"),
        shape=re.compile(
            r"(?:secret_access_key|SECRET_ACCESS_KEY|[sS]ecretAccessKey)"
            rf"{_QUOTE}\s*+[:=]\s*+{_QUOTE}(?P<secret>[A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+])"
        ),
        has_fixed_start=False,
        examples=(f"aws_secret_access_key = {_fill(40)}", f'{{"SecretAccessKey": "{_fill(40)}"}}'),
        counterexamples=("aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']",),
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
    SecretPattern(
        name="private_key",
        literals=("-----BEGIN",),
        shape=re.compile(
            rf"-----BEGIN{_SPACE}(?:[A-Z0-9]{{1,16}}+{_SPACE}){{0,3}}?PRIVATE{_SPACE}KEY(?:{_SPACE}BLOCK)?-----(?P<secret>(?:{_PEM_LINE}++{_PEM_END})?+)"
        ),
        rest=re.compile(rf"{_PEM_TEXT}*+{_PEM_LINE}*+{_PEM_END}"),
        has_fixed_start=False,
        examples=(f"-----BEGIN RSA PRIVATE KEY-----\n{_fill(64)}\n{_fill(20)}\n-----END RSA PRIVATE KEY-----",),
        counterexamples=(f"-----BEGIN CERTIFICATE-----\n{_fill(64)}\n-----END CERTIFICATE-----",),
    ),
    SecretPattern(
        name="url_password",
        literals=("://", ":\\"),
        shape=re.compile(
            r":(?:\\*+/){2}[^\s:/?#@\"'<>\\]{0,128}+:(?P<secret>(?!\$[A-Za-z_(])[!$-.0-;=A-\[\]-~@]{6,256})@(?=[A-Za-z0-9\[_.-])"
        ),
        has_fixed_start=False,
        examples=(
            f"postgresql://app:{_fill(16)}@db.example:5432/app",
            f"https:\\/\\/a:{_fill(9)}%40{_fill(9)}@git.example\\/a.git",
        ),
        counterexamples=(
            "postgres://user:password@localhost/db",
            "https://example.com:8080/@scope/name",
            "redis://:${PASSWORD}@r",
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
            rf"(?i:uthorization){_QUOTE}\s*+[:=,]\s*+{_QUOTE}(?i:bearer|basic|token|apikey|api-key)(?:\s|%20|\+)++"
            r"(?P<secret>[A-Za-z0-9._~+/=%-]{12,}+)"
        ),
        has_fixed_start=False,
        examples=(f"Authorization: Bearer {_fill(24)}", f'{{"authorization": "Basic {_fill(24)}=="}}'),
        counterexamples=(
            "Authorization: Bearer <token>",
            "authorization: Bearer $TOKEN",
            "Authorization: Basic authentication",
        ),
    ),
)


def compile_pattern(expression: str) -> SecretPattern:
    """Return an operator's own pattern. RE2 searches for it: in linear time, whatever the expression. Raises: ValueError."""
    compile_expression = cast("Any", re2).compile
    try:
        shape = cast("re.Pattern[str]", compile_expression(expression, _quiet_options()))
    except cast("Any", re2).error as error:
        raise ValueError(f"{expression!r} is none") from error
    if shape.search("") is not None:
        raise ValueError(f"{expression!r} matches an empty text")
    return SecretPattern(name=expression, literals=(), shape=shape, may_be_guessable=True, has_fixed_start=False)


def _quiet_options() -> object:
    options = cast("Any", re2).Options()
    options.log_errors = False
    return options


def find_pattern_values(text: str) -> Iterator[str]:
    """Yield the secret parts of a text that a pattern knows."""
    for pattern in SECRET_PATTERNS:
        if any(literal in text for literal in pattern.literals):
            yield from (text[start:stop] for start, stop, _ in pattern.find_from(text))
