"""Random secrets of every class, in every form in which redaction finds them, with the texts that must not appear anywhere.

A part of a secret counts as found: what is looked for are overlapping windows of its text. In a stream, only the token runs of a value are
promised to be found (docs/reference/config.md, "Secrets"), so only these are looked for there.
"""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import quote

from ambient_runner.config import SECRET_PATTERNS, TOKEN_RUN, SecretPattern, is_guessable

__all__ = ["CLASSES", "KNOWN_FORMS", "Planted", "plant_secret", "random_token"]

CLASSES = ("env", "granted", "rotated", "structured", "pattern")
KNOWN_FORMS = ("plain", "json", "json2", "json3", "pointer", "url", "base64", "base64url", "hex")
_WINDOW, _WINDOW_STEP, _MIN_ALNUM = 12, 4, 7

_ALNUM = string.ascii_letters + string.digits
_ALPHABETS = (
    _ALNUM,
    _ALNUM + "-_",
    _ALNUM + "+/",
    string.digits + "abcdef",
    _ALNUM + "!#$%&*+-./:=?@\\^_~" * 2,
    _ALNUM + "/~" * 8,
    _ALNUM * 2 + "\"'<>&/\\~%+ ,;|",
    _ALNUM * 3 + "äöüßéñçÅ漢字кириλ",
)
_LENGTHS = ((8, 12), (16, 40), (16, 40), (40, 120), (120, 500), (500, 3000))
"""Only a token has more than 500 characters: of other long values, encoded forms are not promised to be found in streams."""
_KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_ESCAPED = re.compile(r"%[0-9A-F]{2}|\\[nr/]")
_NAMES = (
    *("FUZZ_KEY", "FUZZ_TOKEN", "FUZZ_SECRET", "FUZZ_CREDENTIALS", "GITHUB_PAT", "SENTRY_DSN", "AWS_ACCESS_KEY_ID"),
    *("PGPASSWORD", "FUZZ_PASSWD", "FUZZ_PWD", "OPENAI_APIKEY"),
)
_CONTEXTS = (
    *(("", ""), ("the token is ", " and no more"), ('{"k": "', '"}'), ("https://h.example/?k=", "&b=1")),
    *(("x", "y"), ("Ünïcode ", " 漢字"), ("line\n", "\nline"), ("data:image/png;base64,", "")),
)
_URL_ENCODED = frozenset({"slack_webhook", "url_password"})
"""Patterns with separators that are known in a URL too."""
_WORD_CONTEXTS = (("", ""), ("the key is ", ", ok"), ('{"k": "', '"}'), ("key=", "\n"), ("(", ")"), ("кл ", " 漢"))
"""Contexts of patterns: a key with a known beginning is a word of its own."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One secret and the text that contains it."""

    secret_class: str
    form: str
    text: str
    core: str
    """The part of the text that is secret."""
    credential: str = ""
    """The value that the server knows; empty for a pattern."""
    variable: str = ""
    pattern: str = ""

    def windows(self, *, is_split: bool) -> Iterator[str]:
        """Yield what must not appear, also as JSON writes it. `is_split`: the text was sent in several deltas."""
        cores = [run for run in TOKEN_RUN.findall(self.core) if not is_guessable(run)] if is_split else [self.core]
        for core in cores:
            for text in {core, json.dumps(core)[1:-1], json.dumps(core, ensure_ascii=False)[1:-1]}:
                yield from _windows_of(text)


def _windows_of(text: str) -> Iterator[str]:
    """Yield overlapping windows; the text itself if none has characters enough to be of this secret alone."""
    last = max(0, len(text) - _WINDOW)
    windows = [text[at : at + _WINDOW] for at in (*range(0, last, _WINDOW_STEP), last)]
    yield from [window for window in windows if sum(map(str.isalnum, window)) >= _MIN_ALNUM] or [text]


def plant_secret(rng: Random, secret_class: str) -> Planted:
    """Return a random secret of this class, in a random form and context."""
    if secret_class == "pattern":
        return _plant_pattern(rng)
    value, credential = _structured_part(rng) if secret_class == "structured" else _known_value(rng)
    form = rng.choice(KNOWN_FORMS)
    text, core = _encode(rng, form, value)
    before, after = rng.choice(_CONTEXTS)
    return Planted(
        secret_class=secret_class,
        form=form,
        text=f"{before}{text}{after}",
        core=core,
        credential=credential,
        variable=rng.choice(_NAMES),
    )


def random_token(rng: Random, length: int, alphabet: str = _ALNUM) -> str:
    """Return random characters that are not guessable."""
    while True:
        token = "".join(rng.choices(alphabet, k=length))
        if token == token.strip() and not is_guessable(token):
            return token


def _known_value(rng: Random) -> tuple[str, str]:
    """Return a secret, and the credential that makes it known: itself, or a URL with it as the password."""
    alphabet = rng.choice(_ALPHABETS)
    lengths = _LENGTHS if TOKEN_RUN.fullmatch(alphabet) else _LENGTHS[:-1]
    value = random_token(rng, rng.randint(*rng.choice(lengths)), alphabet)
    if rng.random() < 0.1 and "/" not in value and len(value) < 128:
        return value, f"postgresql://app:{quote(value, safe='')}@db.example/app"
    return value, value


def _structured_part(rng: Random) -> tuple[str, str]:
    """Return a part of a structured credential, and the credential."""
    token = random_token(rng, rng.randint(16, 60), rng.choice(_ALPHABETS[:4]))
    pem_lines = [random_token(rng, 64, _ALNUM + "+/") for _ in range(rng.randint(3, 26))]
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *pem_lines, "-----END PRIVATE KEY-----", ""])
    account = {
        "type": "service_account",
        "project_id": "acme-prod",
        "private_key_id": random_token(rng, 40, string.hexdigits.lower()),
        "private_key": pem,
        "client_email": "robot@acme.example",
        "options": {"nested": [{"client_secret": token}]},
        "token_uri": "https://oauth2.example/token",
    }
    dotenv = f'# comment\nAPI_HOST=api.example\nexport API_TOKEN="{token}"\nDEBUG=1\n'
    return rng.choice(
        [
            (token, json.dumps(account, indent=rng.choice([None, 2]))),
            (rng.choice(pem_lines), json.dumps(account)),
            (account["private_key_id"], json.dumps(account)),
            (rng.choice(pem_lines), pem),
            ("".join(pem_lines), pem),
            (token, dotenv),
            (token, dotenv.replace('"', "'")),
            (token, f"{rng.choice(['Bearer', 'Basic', 'bearer', 'token'])} {token}"),
        ]
    )


def _encode(rng: Random, form: str, value: str) -> tuple[str, str]:
    """Return a text with the value in this form, and the part of it that the value determines."""
    match form:
        case "plain":
            return value, value
        case "json" | "json2" | "json3":
            escaped = value
            for _ in range(int(form[4:] or 1)):
                escaped = rng.choice(_JSON_ENCODERS)(escaped)
            return escaped, escaped
        case "pointer":
            escaped = value.replace("~", "~0").replace("/", "~1")
            return escaped, escaped
        case "url":
            escaped = _encode_url(rng, value)
            return escaped, escaped
        case "hex":
            encoded = value.encode().hex()
            encoded = rng.choice([encoded, encoded.upper()])
            return encoded, encoded
        case _:
            return _encode_base64(rng, value, is_urlsafe=form == "base64url")


_JSON_ENCODERS: tuple[Callable[[str], str], ...] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),
)
"""The encoders of Python, of JavaScript and of PHP."""


def _encode_url(rng: Random, value: str) -> str:
    escaped = quote(value, safe=rng.choice(["", "/", "!'()*"]))
    if rng.random() < 0.5:
        escaped = re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), escaped)
    return escaped.replace("%20", "+") if rng.random() < 0.5 else escaped


def _encode_base64(rng: Random, value: str, *, is_urlsafe: bool, around: Iterable[bytes] = ()) -> tuple[str, str]:
    """Encode the value with random bytes, or those of `around`, before and after it."""
    before, after = around or (rng.randbytes(rng.randint(0, 8)), rng.randbytes(rng.randint(0, 8)))
    data = value.encode()
    encoded = base64.b64encode(before + data + after).decode()
    encoded = encoded.translate(str.maketrans("+/", "-_")) if is_urlsafe else encoded
    start, stop = -(-len(before) * 8 // 6), (len(before) + len(data)) * 8 // 6
    return (encoded.rstrip("=") if rng.random() < 0.5 else encoded), encoded[start:stop]


def _plant_pattern(rng: Random) -> Planted:
    """Return a random credential of one of the shapes, in a form in which the shape survives."""
    pattern = rng.choice(SECRET_PATTERNS)
    credential, secret = _randomize_example(rng, pattern)
    before, after = rng.choice(_WORD_CONTEXTS)
    form = rng.choice(_forms_of(pattern))
    if form == "url" and "\\" in credential:
        form = "plain"  # An example that is escaped already.
    if form in {"base64", "base64url"}:
        around = (rng.randbytes(rng.randint(0, 6)) + b" ", b" " + rng.randbytes(rng.randint(0, 6)))
        text, core = _encode_base64(rng, credential, is_urlsafe=form == "base64url", around=around)
    elif form == "hex":
        text, core = _encode(rng, form, credential)
    elif form == "plain":
        text, core = credential, secret
    elif form == "url":
        text, core = quote(credential, safe=""), quote(secret, safe="")
    else:
        encoder = rng.choice(_JSON_ENCODERS)
        text, core = credential, secret
        for _ in range(int(form[4:] or 1)):
            text, core = encoder(text), encoder(core)
    return Planted(
        secret_class="pattern",
        form=form,
        text=f"{before}{text}{after}",
        core=core,
        pattern=pattern.name,
    )


def _forms_of(pattern: SecretPattern) -> tuple[str, ...]:
    if pattern.has_fixed_start:
        escaped = () if pattern.is_in_lines else ("url",)
        return ("plain", "json", "json2", "json3", *escaped, "base64", "base64url", "hex")
    return ("plain", "json", "json2", "json3", *(["url"] if pattern.name in _URL_ENCODED else []))


def _randomize_example(rng: Random, pattern: SecretPattern) -> tuple[str, str]:
    """Return an example with its secret part replaced by other characters of the same kinds, and that part."""
    while True:
        example = rng.choice(pattern.examples)
        found = pattern.shape.search(example)
        assert found is not None, f"{pattern.name} does not match its example"
        start, stop = found.span("secret" if "secret" in pattern.shape.groupindex else 0)
        fixed = next((literal for literal in pattern.literals if example.startswith(literal, start)), "")
        body = _randomize(rng, example[start + len(fixed) : stop])
        credential = example[:start] + fixed + body + example[stop:]
        again = pattern.shape.search(credential)
        if again and again.span() == found.span() and not is_guessable(body):
            return credential, body


def _randomize(rng: Random, text: str) -> str:
    """Return the text with each letter and digit replaced by another one of it, of the same kind: hex stays hex."""
    kept = {at for match in _ESCAPED.finditer(text) for at in range(*match.span())}
    kinds = [[char for char in text if char in kind] for kind in _KINDS]
    return "".join(
        char if at in kept else rng.choice(next((kind for kind in kinds if char in kind), [char]))
        for at, char in enumerate(text)
    )
