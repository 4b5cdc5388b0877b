"""The values that are secrets of this server: in its environment and in its settings.

A variable is secret by its name, unless its value is guessable: then replacing it would hide ordinary words and protect nothing. Of any
other variable, what a pattern knows is secret, such as the password of a URL.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from ambient_runner.config.credential_patterns import find_pattern_values
from ambient_runner.config.guessability import MIN_SECRET_LENGTH, is_guessable
from ambient_runner.config.streamed_values import is_split_by_streams
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ambient_runner.config.settings import Settings, TracingSettings

__all__ = ["is_secret_name", "url_passwords", "with_secrets"]

_SECRET_WORDS = frozenset(
    {"KEY", "KEYS", "TOKEN", "SECRET", "SECRETS", "CREDENTIAL", "CREDENTIALS", "CREDS", "PAT", "DSN", "PASS", "PW"}
)
_VERSION_WORDS = frozenset({"LIVE", "TEST", "PROD", "BASE", "OLD", "NEW", "PRIMARY", "SECONDARY"})
"""Words that may follow, as in `STRIPE_KEY_LIVE`. A number may, too."""
_PUBLIC_WORDS = frozenset({"PUBLIC", "PUBLISHABLE"})
_SECRET_SUFFIXES = (
    *("PASSWORD", "PASSWD", "PASSPHRASE", "PWD", "TOKEN", "SECRET", "CREDENTIALS", "ACCESSKEYID"),
    *("APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "AUTHKEY", "ACCOUNTKEY", "MASTERKEY", "SIGNINGKEY"),
)
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PATH, _PATH_WORD = re.compile(r"(?:~|\.{1,2})?(?:/[A-Za-z0-9._@-]+)+"), re.compile("[a-z]{3,}")
_WORKING_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
_CREDENTIAL_NAME = re.compile(r"auth|cookie|credential|key$|password|secret|token", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return True if the name of a variable or member suggests that its value is a secret, in whatever case its words are written."""
    words = [word.upper() for word in _NAME_WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _VERSION_WORDS or words[-1].isdigit()):
        words.pop()
    joined = "".join(words)
    is_secret = bool(words) and (words[-1] in _SECRET_WORDS or joined.endswith(_SECRET_SUFFIXES))
    return is_secret and joined not in _WORKING_DIRECTORIES and _PUBLIC_WORDS.isdisjoint(words)


def with_secrets(settings: Settings, environ: Mapping[str, str], names: tuple[str, ...]) -> Settings:
    """Return the settings with all known secret values, and with the names of the variables that redaction protects badly.

    Raises: ConfigError if a variable in `names` is too short to be redacted, or if one is guessable and `secrets.strict` is set.
    """
    guessable = sorted({*settings.guessable_secrets, *_guessable_variables(environ, names)})
    _check_variables(environ, names, guessable if settings.secrets_strict else ())
    found = {
        *settings.secrets,
        *_variable_secrets(environ, names),
        *_store_passwords(settings.store),
        *_tracing_secrets(settings.tracing),
        settings.credentials_token,
        *_agent_secrets(settings),
    }
    secrets = sorted(
        (value for value in found if len(value) >= MIN_SECRET_LENGTH), key=lambda value: (-len(value), value)
    )
    return replace(
        settings,
        secrets=tuple(secrets),
        guessable_secrets=tuple(guessable),
        short_secrets=tuple(sorted({*settings.short_secrets, *_short_variables(environ)})),
        split_secrets=tuple(sorted({*settings.split_secrets, *_split_variables(environ, names)})),
    )


def _check_variables(environ: Mapping[str, str], names: Collection[str], refused: Collection[str]) -> None:
    """Raise ConfigError for a variable in `names` that is too short, and for those that are refused because they are guessable."""
    for name in names:
        if 0 < len(environ.get(name, "")) < MIN_SECRET_LENGTH:
            raise ConfigError(f"{name} is named as a secret but is shorter than {MIN_SECRET_LENGTH} characters.")
    if refused:
        raise ConfigError(
            f"Too easy to guess to be redacted: {', '.join(refused)}. Choose longer random values, or unset secrets.strict."
        )


def _guessable_variables(environ: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    """Yield the variables that are secret by name alone, although their values are guessable."""
    for name, value in environ.items():
        is_named = is_secret_name(name) and name not in names and not _is_path(value)
        if is_named and len(value) >= MIN_SECRET_LENGTH and is_guessable(value):
            yield name


def _short_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that are secret by name, and whose values are too short to be searched for."""
    return (name for name, value in environ.items() if is_secret_name(name) and 0 < len(value) < MIN_SECRET_LENGTH)


def _is_secret_variable(name: str, value: str, names: Collection[str]) -> bool:
    return name in names or (is_secret_name(name) and not is_guessable(value) and not _is_path(value))


def _is_path(value: str) -> bool:
    """Return True for the path of a file, as in `SSL_KEY`: a file is read, and its name is no secret."""
    if not _PATH.fullmatch(value) or not all(map(is_guessable, re.split("[/.]", value))):
        return False
    return sum(map(len, _PATH_WORD.findall(value))) >= len(value) / 2  # Not a random value that has slashes by chance.


def _split_variables(environ: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    """Yield the secret variables whose values are not found if an agent streams them in pieces."""
    for name, value in environ.items():
        if _is_secret_variable(name, value, names) and is_split_by_streams(value):
            yield name


def _variable_secrets(environ: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    for name, value in environ.items():
        if _is_secret_variable(name, value, names):
            yield value
        else:
            yield from url_passwords(value)
            yield from find_pattern_values(value)


def _store_passwords(store: str) -> set[str]:
    password = urlsplit(store).password
    return {password, unquote(password)} if password else set()


def url_passwords(value: str) -> set[str]:
    """Return the password of a URL, as it is written and decoded; nothing for a guessable one and for any other text."""
    try:
        password = urlsplit(value.strip()).password or ""
    except ValueError:
        return set()
    return set() if is_guessable(password) else {password, unquote(password)}


def _agent_secrets(settings: Settings) -> set[str]:
    """Return the secrets in the tables of agents: strings at any level whose name suggests a credential."""
    agents = (*settings.agents, *settings.configured_agents)
    tables: list[Mapping[str, object]] = [agent.options for agent in agents if not isinstance(agent, str)]
    found: set[str] = set()
    while tables:
        for name, value in tables.pop().items():
            if isinstance(value, dict):
                tables.append(cast("dict[str, object]", value))
            elif isinstance(value, str) and _CREDENTIAL_NAME.search(name):
                found |= {value, value.partition(" ")[2]}
    return found


def _tracing_secrets(tracing: TracingSettings) -> set[str]:
    """Return the values that allow writing traces, in every form in which they are sent."""
    headers = {value for _, value in tracing.otlp.headers} if tracing.otlp else set[str]()
    keys = {tracing.langfuse.secret_key, tracing.langfuse.authorization} if tracing.langfuse else set[str]()
    values = headers | keys
    return values | {value.partition(" ")[2] for value in values if " " in value}
