"""The state of a session, as its agent reports it: modes, options, commands, title, usage and plans. Published as shared state. Pure.

An agent reports it during a turn and between turns. `SessionState` keeps the newest value of each member, and which of them clients do not
have yet. A run takes all of it at its start, and then the changes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from ambient_runner.bridges.acp.messages import as_list, as_text, bounded_json, head_and_tail
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.protocol.json_pointer import format_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ambient_runner.protocol.events import JsonPatch

__all__ = ["STATE_KEY", "SessionState", "announced_mode", "plan_content"]

STATE_KEY = "acp"
"""The key of the shared state that the session is published under."""

_MAX_LIST_BYTES = 256 << 10
"""Of the modes, options, commands or entries of a plan, as JSON."""
_MAX_TITLE_BYTES = 1 << 10
_MAX_PLANS = 20
_CONVERSATION_MEMBERS = frozenset({"title", "commands", "plan", "plans"})
"""Members that may quote the conversation or the files of the agent."""
_MODE_ANNOUNCEMENT = re.compile(r"\[MODE_UPDATE\] (\S{1,64})")


class SessionState:
    """The published part of a session. `value` has these members, each once the agent has reported it:

    `modes` {currentModeId, availableModes}, `models` {currentModelId, availableModels}, `configOptions`, `commands`, `title`, `updatedAt`,
    `usage` {used, size, cost}, `plan` (its entries), and `plans`, those that have an id, by it.
    """

    def __init__(self, *, is_safe: bool = False) -> None:
        """`is_safe`: anyone may see the state, so that it has nothing of the conversation."""
        self._left_out = _CONVERSATION_MEMBERS if is_safe else frozenset[str]()
        self._value: dict[str, Any] = {}
        self._changed: set[str] = set()

    @property
    def value(self) -> dict[str, Any]:
        """Everything that is published under `STATE_KEY`. Do not change it in place."""
        return self._value

    @property
    def is_changed(self) -> bool:
        """True if something has changed since it was last taken."""
        return bool(self._changed)

    def take_value(self) -> dict[str, Any]:
        """Return everything, for `StateStore.update_with_patch({STATE_KEY: …})`."""
        self._changed.clear()
        return self._value

    def take_patch(self) -> JsonPatch:
        """Return what has changed since it was last taken, for `StateStore.apply_patch`: the state must have had the rest.

        Commands and options are long, and the usage changes often.
        """
        names, self._changed = sorted(self._changed), set()
        return [_set_operation(name, self._value) for name in names]

    @property
    def mode_id(self) -> str | None:
        """The mode the agent is in, as it names it."""
        current = as_text(as_object(self._value.get("modes")).get("currentModeId"))
        return current or self._option_value("mode")

    @property
    def model_id(self) -> str | None:
        """The model the agent uses, as it names it."""
        return (
            self._option_value("model") or as_text(as_object(self._value.get("models")).get("currentModelId")) or None
        )

    @property
    def mode_ids(self) -> list[str]:
        """The modes that the agent offers."""
        modes = as_list(as_object(self._value.get("modes")).get("availableModes"))
        return [mode["id"] for mode in map(as_object, modes) if as_text(mode.get("id"))]

    def find_option(self, category: str) -> dict[str, Any] | None:
        """Return the config option of this category, such as `model`; None if the agent has none."""
        options = map(as_object, as_list(self._value.get("configOptions")))
        return next((option for option in options if option.get("category") == category), None)

    def is_session_update(self, update: Mapping[str, Any]) -> bool:
        """Return True if the update is about the session, and not about a turn."""
        return as_text(update.get("sessionUpdate")) in self._APPLIERS

    def apply_session(self, result: Mapping[str, Any]) -> None:
        """Take over the modes, models and options in the answer to `session/new`, `load`, `resume` or `set_config_option`."""
        for name in ("modes", "models"):
            if name in result:
                self._set(name, bounded_json(as_object(result[name]), _MAX_LIST_BYTES) or None)
        if "configOptions" in result:
            self._set_config_options(result)

    def apply(self, update: Mapping[str, Any]) -> None:
        """Take over an update, if it is about the session."""
        apply = self._APPLIERS.get(as_text(update.get("sessionUpdate")))
        if apply is not None:
            apply(self, update)

    def set_mode(self, mode_id: str) -> None:
        """Set the mode the agent is in, also in its config options."""
        modes = {**as_object(self._value.get("modes")), "currentModeId": head_and_tail(mode_id, _MAX_TITLE_BYTES)}
        self._set("modes", modes)
        option = self.find_option("mode")
        if option is not None and mode_id in _option_values(option):
            options = as_list(self._value.get("configOptions"))
            changed = [{**option, "currentValue": mode_id} if item is option else item for item in options]
            self._set("configOptions", changed)

    def _apply_mode(self, update: Mapping[str, Any]) -> None:
        mode_id = as_text(update.get("currentModeId"))
        if mode_id:
            self.set_mode(mode_id)

    def _set_config_options(self, update: Mapping[str, Any]) -> None:
        options = [as_object(option) for option in as_list(update.get("configOptions"))]
        self._set("configOptions", bounded_json([option for option in options if option], _MAX_LIST_BYTES))
        mode_id, modes = self._option_value("mode"), as_object(self._value.get("modes"))
        if mode_id and modes:
            self._set("modes", {**modes, "currentModeId": mode_id})

    def _apply_commands(self, update: Mapping[str, Any]) -> None:
        commands = [as_object(command) for command in as_list(update.get("availableCommands"))]
        named = [_without_meta(command) for command in commands if as_text(command.get("name"))]
        self._set("commands", bounded_json(named, _MAX_LIST_BYTES))

    def _apply_info(self, update: Mapping[str, Any]) -> None:
        for name in ("title", "updatedAt"):
            if name in update:
                self._set(name, head_and_tail(as_text(update[name]), _MAX_TITLE_BYTES) or None)

    def _apply_usage(self, update: Mapping[str, Any]) -> None:
        cost = as_object(update.get("cost"))
        usage: dict[str, Any] = {name: update[name] for name in ("used", "size") if _is_number(update.get(name))}
        if _is_number(cost.get("amount")):
            usage["cost"] = {"amount": cost["amount"], "currency": as_text(cost.get("currency"))[:16]}
        self._set("usage", {**as_object(self._value.get("usage")), **usage} or None)

    def _apply_plan(self, update: Mapping[str, Any]) -> None:
        self._set("plan", plan_content(update)["entries"])

    def _apply_plan_update(self, update: Mapping[str, Any]) -> None:
        plan = as_object(update.get("plan"))
        others = [(name, item) for name, item in self._plans.items() if name != _plan_id(plan)]
        self._set("plans", {**dict(others[-_MAX_PLANS:]), _plan_id(plan): plan_content(plan)})

    def _apply_plan_removed(self, update: Mapping[str, Any]) -> None:
        plan_id = _plan_id(update)
        self._set("plans", {name: item for name, item in self._plans.items() if name != plan_id} or None)

    @property
    def _plans(self) -> dict[str, Any]:
        return as_object(self._value.get("plans"))

    def _option_value(self, category: str) -> str | None:
        return as_text(as_object(self.find_option(category)).get("currentValue")) or None

    def _set(self, name: str, value: Any) -> None:
        """Set a member, or remove it with None."""
        if name in self._left_out or self._value.get(name) == value:
            return
        self._changed.add(name)
        rest = {key: item for key, item in self._value.items() if key != name}
        self._value = rest if value is None else {**rest, name: value}

    _APPLIERS: ClassVar[dict[str, Callable[[SessionState, Mapping[str, Any]], None]]] = {
        "available_commands_update": _apply_commands,
        "current_mode_update": _apply_mode,
        "config_option_update": _set_config_options,
        "session_info_update": _apply_info,
        "usage_update": _apply_usage,
        "plan": _apply_plan,
        "plan_update": _apply_plan_update,
        "plan_removed": _apply_plan_removed,
    }


def _set_operation(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation that gives clients a member of the value. One that is gone is set to None: clients may never have had it."""
    return {"op": "add", "path": format_pointer(STATE_KEY, name), "value": value.get(name)}


def announced_mode(update: Mapping[str, Any]) -> str | None:
    """Return the mode that Gemini announces as text, such as `[MODE_UPDATE] plan`; None for any other text."""
    match update.get("content"):
        case {"type": "text", "text": str(text)} if found := _MODE_ANNOUNCEMENT.fullmatch(text):
            return found[1]
        case _:
            return None


def plan_content(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan as clients get it: `entries` of content, priority and status; `markdown` or `uri` of one in another form."""
    entries = [as_object(entry) for entry in as_list(plan.get("entries"))]
    content: dict[str, Any] = {"entries": bounded_json([_plan_entry(entry) for entry in entries], _MAX_LIST_BYTES)}
    for name, member in (("markdown", "content"), ("uri", "uri")):
        if as_text(plan.get(member)):
            content[name] = head_and_tail(plan[member], _MAX_LIST_BYTES)
    return content


def _plan_entry(entry: Mapping[str, Any]) -> dict[str, str]:
    return {name: as_text(entry.get(name)) for name in ("content", "priority", "status")}


def _plan_id(plan: Mapping[str, Any]) -> str:
    return head_and_tail(as_text(plan.get("planId")), _MAX_TITLE_BYTES)


def _option_values(option: Mapping[str, Any]) -> list[Any]:
    """Return the values that an option can have; they may be in groups."""
    choices = [as_object(choice) for choice in as_list(option.get("options"))]
    grouped = [as_object(choice) for group in choices for choice in as_list(group.get("options"))]
    return [choice.get("value") for choice in [*choices, *grouped]]


def _without_meta(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in members.items() if name != "_meta"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
