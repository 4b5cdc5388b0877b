"""The shape of a private key in PEM, as files, tools and code show it: lines of base64 after `-----BEGIN … PRIVATE KEY-----`.

Each line may have a prefix: indentation, a line number, a file name, the mark of a diff, the name of a container. Lines may also be strings
of code, or be joined by escapes. A key ends before the first line without base64 of 16 characters, but for its last line, which may be
shorter. A line of a stream is matched from its beginning, so that the key ends at the same place however the text is split.
"""

from __future__ import annotations

import re

from ambient_runner.config.secret_patterns import SecretPattern

__all__ = ["private_key_pattern"]

_SPACE = r"(?:[ +]|%20)"
_CHAR = r"[A-Za-z0-9+/=%]"
_BREAK = r"(?:\r\n?+|\n|\\{1,16}+[nr]|%0[AaDd])"
_GAP_IN_LINE = r"(?:\\{1,16}+t|\\(?!\\{0,15}+[nr])|<br ?/?>|[+](?=[ \r\n\\])|-(?!----)|[^A-Za-z0-9+/=%\\\r\n-])"
_GAP = rf"(?:{_BREAK}|{_GAP_IN_LINE})"
"""The characters that may be between two lines besides a prefix: quotes, commas, spaces. No letters and digits."""
_LINE_END = rf"(?={_GAP_IN_LINE}{{0,16}}+(?:{_BREAK}|-----))"
_RUN_START = rf"(?:(?<!{_CHAR})|(?<=\\[nrt])|(?<=%0[AaDd]))"
_RUN = rf"{_CHAR}{{16,}}+"
_RUN_AFTER_PREFIX = rf"{_RUN_START}(?:{_CHAR}{{64}}|{_CHAR}{{16,63}}+{_LINE_END})"
"""A short run ends its line: otherwise it is a word of a sentence."""
_HEADER = r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID): ?(?:[^\r\n\\]|\\(?!\\{0,15}+[nr])){0,96}+"


def _after_prefix(shape: str) -> str:
    """Return the expression for a prefix of a line that `shape` follows."""
    return rf"(?:(?!{shape}|{_BREAK}|-----)[^\r\n]){{0,80}}+(?={shape})"


_BEFORE_RUN = rf"(?:{_GAP}{{0,96}}+(?:(?={_RUN}(?![._:@~]|-(?!----)))|{_after_prefix(_RUN_AFTER_PREFIX)}))"
_HEADERS = rf"(?:{_GAP}{{0,96}}+{_after_prefix(_HEADER)}{_HEADER})*+"
_LINES = rf"(?:{_BEFORE_RUN}{_RUN})*+"
_SHORT_RUN = rf"(?![+](?!{_CHAR})){_CHAR}{{1,15}}+"
_SHORT_LINE = rf"{_GAP_IN_LINE}{{0,48}}+{_SHORT_RUN}{_LINE_END}"
_PADDED = rf"{_RUN_START}[A-Za-z0-9+/]{{1,14}}+={{1,2}}+{_LINE_END}"
_BEFORE_END = rf"{_RUN_START}{_SHORT_RUN}(?={_GAP}{{0,96}}+[^\r\n]{{0,80}}?-----END)"
_END = "|".join(
    (
        rf"{_GAP_IN_LINE}{{0,16}}+{_BREAK}{_SHORT_LINE}",
        *(rf"{_GAP}{{0,96}}+{_after_prefix(shape)}{_CHAR}{{1,15}}+" for shape in (_PADDED, _BEFORE_END)),
        _BREAK,
    )
)
_NEXT_LINE = r"(?:(?!-----)[^\r\n]){0,144}+\Z"
"""The beginning of a line that is not complete: more text decides whether it belongs to the key."""
_UNDECIDED = rf"(?:{_GAP}{{0,96}}+{_NEXT_LINE})?+"
_AT_LINE_START = rf"(?<![\r\n]\n)(?<!\n\r\n)(?:{_SHORT_LINE})|{_after_prefix(_PADDED)}{_CHAR}{{1,15}}+"


def _key_examples(run: str, rest: str) -> tuple[str, ...]:
    """Return a key of these two lines as files, tools and code show it."""
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    lines = (begin, run, rest, end)
    return (
        "\n".join(lines),
        "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1)),
        "\n".join(f"{number:6}→{line}" for number, line in enumerate(lines, 1)),
        "\n".join(f"certs/example/server.key:{number}:{line}" for number, line in enumerate(lines, 1)),
        "\n".join(f"-{line}" for line in lines),
        "\n".join(f"+{line}" for line in lines),
        "\n".join(f"> {line}" for line in lines),
        "\n".join(f"            {line}" for line in lines),
        "\n".join(f"a1b2c3d4 (author 2026-01-01 10:00:00 +0000 {at}) {line}" for at, line in enumerate(lines)),
        "\n".join(f"web-1  | {line}" for line in lines),
        "\n".join(f"| {line} |" for line in lines),
        " +\n".join(f'"{line}\\n"' for line in lines),
        repr(list(lines)),
        "<br>\n".join(lines),
        " ".join(lines),
        "\n".join((begin, "Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{'0A1B' * 8}", "", run, rest, end)),
        "\n".join(
            (
                "-----BEGIN PGP PRIVATE KEY BLOCK-----",
                "Version: GnuPG v2",
                "Comment: https://gnupg.org",
                "",
                run,
                rest,
                "=aB3d",
            )
        ),
    )


def private_key_pattern(run: str, rest: str) -> SecretPattern:
    """Return the pattern. `run` and `rest` are lines of an example."""
    return SecretPattern(
        name="private_key",
        literals=("-----BEGIN",),
        shape=re.compile(
            rf"-----BEGIN{_SPACE}(?:[A-Z0-9]{{1,16}}+{_SPACE}){{0,3}}?PRIVATE{_SPACE}KEY(?:{_SPACE}BLOCK)?-----"
            rf"(?:(?P<secret>{_HEADERS}{_BEFORE_RUN}(?P<checked>{_RUN}){_LINES}(?:{_END})?+){_UNDECIDED})?+"
        ),
        rest=re.compile(
            rf"(?:(?<=\\)[nr])?+(?P<secret>(?:(?<={_CHAR}){_CHAR}++|{_BEFORE_RUN}{_RUN}){_LINES}(?:{_END})?+){_UNDECIDED}"
            rf"|(?P<secret_line>{_AT_LINE_START})|{_BREAK}*+{_NEXT_LINE}"
        ),
        is_in_lines=True,
        decided_within=384,
        examples=_key_examples(run, rest),
        counterexamples=(
            f"-----BEGIN CERTIFICATE-----\n{run}\n-----END CERTIFICATE-----",
            "-----BEGIN PRIVATE KEY-----\nYOURPRIVATEKEYGOESHERE\n-----END PRIVATE KEY-----",
            "The file has -----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY-----. Internationalization is next.",
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\nthe internationalization\n",
        ),
    )
