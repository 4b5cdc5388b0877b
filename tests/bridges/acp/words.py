"""What was said in a run: parts of the words of `summarize`."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["custom_values", "select_words", "spoken"]


def spoken(words: list[str]) -> str:
    """Return the text of the agent."""
    return "".join(json.loads(word.split(" ", 2)[2]) for word in words if word.startswith("TC "))


def select_words(words: list[str], *kinds: str) -> list[str]:
    return [word for word in words if word.split()[0] in kinds]


def custom_values(words: list[str], name: str) -> list[Any]:
    """Return the values of the CUSTOM events of this name."""
    prefix = f"CUSTOM {name} "
    return [json.loads(word.removeprefix(prefix)) for word in words if word.startswith(prefix)]
