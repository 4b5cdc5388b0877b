"""Deltas as models send them: words, code, Chinese and Japanese, emoji, and pieces of 1 to 60 characters. The same for every server."""

from __future__ import annotations

import base64
import itertools
import random
import re
from functools import cache

DIGITS = "digits"
"""Numbers, each with a space: the shape of most other measurements."""

_PROSE = """The report covers three regions, and each of them grew faster than expected: 4.2 % in the north, 3.9 % in the \
west and 7.1 % in the south. "Why the south?" you may ask. Its ports were dredged in March; ships that used to unload elsewhere (some \
250 a month) now call there first.\n\nTo summarise:\n\n1. Demand follows capacity, not the other way round.\n2. Prices don't.\n"""
_CODE = '''```python
def load_users(path: Path, *, limit: int = 100) -> list[User]:
    """Return the first users of a CSV file."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file, delimiter=";")
        return [User(id=int(row["id"]), name=row["name"].strip()) for row in itertools.islice(rows, limit)]

users = load_users(Path("data/users.csv"), limit=0x40)
print(f"{len(users)} users, {sum(u.id % 2 for u in users)} odd\\t\\"done\\"")
```
'''
_CJK = (
    "今年の報告書は三つの地域を対象としています。北部は四パーセント、南部は七パーセント成長しました。"
    "为什么南方增长更快？因为港口在三月完成了疏浚，船只现在首先停靠那里。"  # noqa: RUF001
)
_EMOJI = "Great news 🎉 the build is green ✅ and the café ☕️ is open 👩‍💻👨🏽‍🔬 — naïve façade, 10 € 🇵🇹 🚀🚀 …"
_CODE_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
_FIXED_LENGTH = 40


def _words() -> list[str]:
    return re.findall(r"\s*\S+", _PROSE)


def _code() -> list[str]:
    return _CODE_TOKEN.findall(_CODE)


def _cjk() -> list[str]:
    return re.findall(r".{1,3}", _CJK)


def _emoji() -> list[str]:
    return re.findall(r"\s*\S+", _EMOJI)


def _pieces() -> list[str]:
    """Return pieces of 1 to 60 characters of everything above: they begin and end anywhere in a word."""
    text, rng = (_PROSE + _CODE + _CJK + _EMOJI) * 4, random.Random(7)
    found, at = list[str](), 0
    while at < len(text):
        size = rng.randint(1, 60)
        found.append(text[at : at + size])
        at += size
    return found


def _forty() -> list[str]:
    """Return pieces of 40 characters of prose: what a server that batches its model's tokens sends."""
    text = _PROSE * 12
    return [text[at : at + _FIXED_LENGTH] for at in range(0, len(text) - _FIXED_LENGTH, _FIXED_LENGTH)]


def _base64() -> list[str]:
    """Return pieces of 40 characters of encoded data, which look like the inside of a secret everywhere."""
    data = base64.b64encode(random.Random(8).randbytes(30 * 200)).decode()
    return [data[at : at + _FIXED_LENGTH] for at in range(0, len(data), _FIXED_LENGTH)]


_SHAPES = {
    "words": _words,
    "code": _code,
    "cjk": _cjk,
    "emoji": _emoji,
    "pieces": _pieces,
    "forty": _forty,
    "base64": _base64,
}
TITLES = {
    DIGITS: "digits",
    "words": "words",
    "code": "code, a token each",
    "cjk": "Chinese and Japanese, 1 to 3 characters",
    "emoji": "emoji and accents",
    "pieces": "1 to 60 characters of all of these",
    "forty": "40 characters of prose",
    "base64": "40 characters of base64",
}


@cache
def build_deltas(shape: str, count: int) -> list[str]:
    """Return so many deltas of a shape; none is empty."""
    if shape == DIGITS:
        return [f"{number} " for number in range(1, count + 1)]
    return list(itertools.islice(itertools.cycle(_SHAPES[shape]()), count))
