"""Names that are safe where they are used: as a folder, as a git ref, as the name of a repository. Pure rules, no file system."""

from __future__ import annotations

import hashlib
import re
import string

from ambient_runner.errors import InvalidInput

__all__ = ["check_branch", "check_name", "folder_name", "name_of", "thread_branch"]

_LONGEST_FOLDER = 100
_KEPT_OF_LONG = 32
_FOLDER = frozenset(string.ascii_lowercase + string.digits + "-_")
_REF = frozenset(string.ascii_letters + string.digits + "-_")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_NOT_IN_REFS = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)")
_LONGEST_REF = 200
_NAME_RULE = (
    "It has 1 to 100 letters, digits, dots, dashes and underscores, does not begin with a dot or a dash, "
    "and does not end in a dot, .git or .lock."
)


def folder_name(text: str) -> str:
    """A name for a folder that no other text gets, also where case and Unicode forms do not count.

    Lower-case letters, digits, `-` and `_` stay; every other byte becomes `=` and two hex digits. A long name ends in a hash.
    """
    return _shortened(_encode(text, _FOLDER))


def thread_branch(thread: str) -> str:
    """The branch a thread works on in each of its repositories."""
    return f"ambient/{_shortened(_encode(thread, _REF))}"


def _encode(text: str, kept: frozenset[str]) -> str:
    """The text in these characters and `=` alone, so that no other text becomes the same."""
    encoded = (
        char if char in kept else "".join(f"={byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )
    return "".join(encoded) or "="


def _shortened(encoded: str) -> str:
    """As it is, or with a hash in place of its end. `=-` never comes out of the encoding, so a hash is no other text's own."""
    if len(encoded) <= _LONGEST_FOLDER:
        return encoded
    return f"{encoded[:_KEPT_OF_LONG]}=-{hashlib.sha256(encoded.encode()).hexdigest()}"


def check_name(name: str) -> str:
    """The name of a repository, if it may be one.

    Raises: InvalidInput.
    """
    # `.git` at the end, in any case, is what some file systems take for the folder git trusts.
    if _NAME.fullmatch(name) and not name.lower().endswith((".git", ".lock", ".")):
        return name
    raise InvalidInput(f"That is not a name for a repository. {_NAME_RULE}")


def name_of(url: str) -> str:
    """The name a URL gives its repository: the last part of its path, without `.git`.

    Raises: InvalidInput when that is no name; the caller may give one.
    """
    last = re.split(r"[/:]", url.rstrip("/"))[-1]
    try:
        return check_name(last.removesuffix(".git"))
    except InvalidInput as error:
        raise InvalidInput(
            f"The URL does not end in a name for the repository. Send one beside it. {_NAME_RULE}"
        ) from error


def check_branch(branch: str) -> str:
    """A branch or tag, if git would take it for one and for nothing else.

    Raises: InvalidInput.
    """
    wrong = (
        not branch
        or len(branch) > _LONGEST_REF
        or branch.startswith(("-", ".", "/", "refs/"))
        or branch.endswith((".", "/"))
        or branch in ("@", "HEAD")
        or not branch.isprintable()
        or _NOT_IN_REFS.search(branch)
    )
    if wrong:
        raise InvalidInput(
            "That is not the name of a branch. Name one that `git branch --remotes` lists, without `origin/`."
        )
    return branch
