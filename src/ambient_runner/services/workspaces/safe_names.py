"""Rules for names that become directories, git refs or repository names. Pure, without file system access."""

from __future__ import annotations

import hashlib
import re
import string

from ambient_runner.errors import InvalidInput

__all__ = ["check_branch", "check_name", "directory_name", "repo_name_from_url", "thread_branch"]

_MAX_DIRECTORY_NAME = 100
_LONG_NAME_PREFIX = 32
_DIRECTORY_CHARACTERS = frozenset(string.ascii_lowercase + string.digits + "-_")
_REF_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_")
_REPO_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_FORBIDDEN_IN_REFS = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|\Z)")
_MAX_REF = 200
_NAME_RULE = (
    "It has 1 to 100 letters, digits, dots, dashes and underscores, does not begin with a dot or a dash, "
    "and does not end in a dot, .git or .lock."
)


def directory_name(text: str) -> str:
    """Return a unique directory name for the text, also on file systems that ignore case or Unicode forms.

    Lower-case letters, digits, `-` and `_` stay; every other byte becomes `=` and two hex digits. A long name ends in a hash.
    """
    return _shorten_name(_escape_text(text, _DIRECTORY_CHARACTERS))


def thread_branch(thread: str) -> str:
    """Return the branch a thread works on in each of its repositories."""
    return f"ambient/{_shorten_name(_escape_text(thread, _REF_CHARACTERS))}"


def _escape_text(text: str, allowed: frozenset[str]) -> str:
    """Return the text in the allowed characters and `=` only. Different texts have different results."""
    encoded = (
        char if char in allowed else "".join(f"={byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )
    return "".join(encoded) or "="


def _shorten_name(encoded: str) -> str:
    """Return the name, with a hash in place of its end if it is too long. `=-` never results from escaping, so there is no collision."""
    if len(encoded) <= _MAX_DIRECTORY_NAME:
        return encoded
    return f"{encoded[:_LONG_NAME_PREFIX]}=-{hashlib.sha256(encoded.encode()).hexdigest()}"


def check_name(name: str) -> str:
    """Return the name if it is valid for a repository.

    Raises: InvalidInput.
    """
    # Some file systems treat a name that ends in `.git`, in any case, as the directory that git trusts.
    if _REPO_NAME.fullmatch(name) and not name.lower().endswith((".git", ".lock", ".")):
        return name
    raise InvalidInput(f"That is not a valid repository name. {_NAME_RULE}")


def repo_name_from_url(url: str) -> str:
    """Return the repository name in a URL: the last part of its path, without `.git`.

    Raises: InvalidInput when that is not a valid name.
    """
    last = re.split(r"[/:]", url.rstrip("/"))[-1]
    try:
        return check_name(last.removesuffix(".git"))
    except InvalidInput as error:
        raise InvalidInput(
            f"The URL does not end in a valid repository name. Send `name` with the request. {_NAME_RULE}"
        ) from error


def check_branch(branch: str) -> str:
    """Return the branch or tag if git can take it for nothing else.

    Raises: InvalidInput.
    """
    wrong = (
        not branch
        or len(branch) > _MAX_REF
        or branch.startswith(("-", ".", "/", "refs/"))
        or branch.endswith((".", "/"))
        or branch in ("@", "HEAD")
        or not branch.isprintable()
        or _FORBIDDEN_IN_REFS.search(branch)
    )
    if wrong:
        raise InvalidInput(
            "That is not a valid branch name. Use one that `git branch --remotes` lists, without `origin/`."
        )
    return branch
