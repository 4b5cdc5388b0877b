"""Lowering of a RunAgentInput: which parts of what a client sends may reach agent code. Pure; `lowering_log.py` reports the rest.

`input_acceptance.py` decides which messages the thread accepts; here are the rules for their members, for `forwardedProps` and for media
URLs. Those for `state` are in `projections/state.py`, beside those for its patches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ambient_runner.errors import InvalidInput
from ambient_runner.projections.annotations import without_server_metadata
from ambient_runner.protocol.events import DataSource, FileSource, TextPart, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.config.settings import PropNames
    from ambient_runner.protocol.events import Message, PartSource

__all__ = [
    "HTTPS_ONLY",
    "LeftOut",
    "PropRule",
    "PropRules",
    "check_media_urls",
    "lower_messages",
    "lower_props",
    "merge_prop_rules",
]

HTTPS_ONLY = frozenset({"https"})
"""Schemes of media URLs that an agent gets, unless its bridge has rules of its own for fetching them."""

_ANSWER_MEMBERS = frozenset({"resume", "interruptEvent"})
"""Members of `forwardedProps.command` with which an older client answers an interrupt. The Runner reads them (`interrupt_answers.py`)."""
_RESERVED_METADATA = frozenset({"hidden", "autoSent", "source"})
_RESERVED_PREFIX = "ambient"
_MAX_METADATA_BYTES = 16 << 10
_DROPPED_MEMBERS = {"name": "name", "encrypted_value": "encryptedValue", "subagent_run_id": "subagentRunId"}
"""Fields of a user message that are no client's to set, with their names on the wire."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PropRule:
    """The part of one key of `forwardedProps` that reaches an agent."""

    members: Collection[str] | None = None
    """Members of the value, which must be an object; None for the whole value."""
    values: Collection[Any] | None = None
    """Allowed values; None for any."""
    setting: str = "forwarded_props"
    """The setting of the agent that lets more pass, for the log."""


_UNKNOWN_KEY = PropRule(values=())
_UNKNOWN_COMMAND = PropRule(members=())

PropRules = Mapping[str, PropRule] | Literal["all"]
"""The keys of `forwardedProps` that reach an agent, with their rules; or all of them as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A part of an input that does not reach the agent."""

    kind: Literal["forwarded_props", "message"]
    path: str
    """Names as the client sent them."""
    setting: str = ""
    """The setting of the agent that lets it pass; empty if none does."""


def merge_prop_rules(own: Mapping[str, PropRule] | Sequence[str], listed: PropNames | None) -> PropRules:
    """Return the rules of an agent: those of its bridge, and the keys that its settings list.

    `own` may be the names of keys, or `all`; then a list in the settings replaces it.
    """
    if listed == "all" or (own == "all" and listed is None):
        return "all"
    rules = own if isinstance(own, Mapping) else {} if own == "all" else {key: PropRule() for key in own}
    return {**rules, **{key: PropRule() for key in listed or ()}}


def lower_props(props: Any, rules: PropRules) -> tuple[Any, list[LeftOut]]:
    """Return the part of `forwardedProps` that reaches the agent, and what does not."""
    if rules == "all" or props is None:
        return props, []
    if not isinstance(props, dict):
        return {}, [LeftOut(kind="forwarded_props", path="forwardedProps", setting=PropRule().setting)]
    kept: dict[str, Any] = {}
    left_out: list[LeftOut] = []
    for key, value in cast("dict[str, Any]", props).items():
        rule = rules.get(key, _UNKNOWN_COMMAND if key == "command" else _UNKNOWN_KEY)
        lowered, names = _lower_prop(value, rule)
        if lowered is not msgspec.UNSET:
            kept[key] = lowered
        left_out += [
            LeftOut(kind="forwarded_props", path=_path(key, name), setting=rule.setting)
            for name in names
            if not (key == "command" and name in _ANSWER_MEMBERS)
        ]
    return kept, left_out


def _lower_prop(value: Any, rule: PropRule) -> tuple[Any, list[str]]:
    """Return what passes of one value, or UNSET; and the members that do not, with an empty name for the value itself."""
    if rule.members is None:
        is_allowed = rule.values is None or any(value == allowed for allowed in rule.values)
        return (value, []) if is_allowed else (msgspec.UNSET, [""])
    if not isinstance(value, dict) or not value:
        return msgspec.UNSET, [""]
    members = cast("dict[str, Any]", value)
    kept = {name: item for name, item in members.items() if name in rule.members}
    return kept or msgspec.UNSET, [name for name in members if name not in rule.members]


def _path(key: str, member: str) -> str:
    return ".".join(["forwardedProps", *(name for name in (key, member) if name)])


def lower_messages(
    messages: Iterable[Message], find_stored: Callable[[str], Message | None]
) -> tuple[list[Message], list[LeftOut]]:
    """Return the messages with what a client may set of its user messages: id, content and bounded metadata without our names.

    The others lose only what snapshots add to them, such as their feedback, which a client sends back with its history.
    `find_stored` returns the thread's message of an id. User messages keep our names in their metadata when a client sends them again.
    """
    lowered: list[Message] = []
    left_out: list[LeftOut] = []
    for message in messages:
        if not isinstance(message, UserMessage):
            lowered.append(without_server_metadata(message))
            continue
        stored = find_stored(message.id)
        known = stored if isinstance(stored, UserMessage) else None
        lowered.append(_lower_user_message(message, (known.metadata if known else None) or {}))
        if known is None:
            left_out += [LeftOut(kind="message", path=f"messages.{name}") for name in _dropped_names(message)]
    return lowered, left_out


def _lower_user_message(message: UserMessage, known: Mapping[str, Any]) -> UserMessage:
    given = message.metadata or {}
    own = {} if _is_too_large(given) else {name: item for name, item in given.items() if not _is_reserved(name)}
    ours = {name: item for name, item in known.items() if _is_reserved(name)}
    return UserMessage(id=message.id, content=message.content, metadata={**ours, **own} or None)


def _dropped_names(message: UserMessage) -> list[str]:
    names = [wire for field, wire in _DROPPED_MEMBERS.items() if getattr(message, field) is not None]
    metadata = message.metadata or {}
    if _is_too_large(metadata):
        return [*names, "metadata"]
    return [*names, *(f"metadata.{name}" for name in metadata if _is_reserved(name))]


def _is_reserved(name: str) -> bool:
    return name in _RESERVED_METADATA or name.lower().startswith(_RESERVED_PREFIX)


def _is_too_large(metadata: Mapping[str, Any]) -> bool:
    return bool(metadata) and len(msgspec.json.encode(metadata)) > _MAX_METADATA_BYTES


def check_media_urls(messages: Iterable[Message], schemes: Collection[str]) -> None:
    """Check the media URLs of new messages: of these schemes, or `data:`. Raises: InvalidInput."""
    for message in messages:
        if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
            continue
        for at, part in enumerate(message.content):
            if not isinstance(part, TextPart) and not _is_allowed_source(part.source, schemes):
                raise InvalidInput(
                    f"content[{at}].source.value of the message {message.id} must be an {' or '.join(sorted(schemes))} URL. "
                    'Serve the file over https, or send its bytes: {"type": "data", "value": "<base64>", "mimeType": "…"}.'
                )


def _is_allowed_source(source: PartSource, schemes: Collection[str]) -> bool:
    """Return True for data, for a URL of these schemes, and for the id of a provider's file. Bridges may read a URL there too."""
    if isinstance(source, DataSource) or (isinstance(source, FileSource) and "://" not in source.value):
        return True
    scheme, _, rest = source.value.partition(":")
    return scheme.lower() == "data" or (scheme.lower() in schemes and rest.startswith("//"))
