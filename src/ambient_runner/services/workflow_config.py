"""What a workflow says about itself, in `.ambient/ambient.json` and `.ambient/rubric.md`. Read once, when it is chosen."""

from __future__ import annotations

import logging
from pathlib import Path, PurePosixPath
from typing import Any, cast

import msgspec

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.strict_json import loads
from ambient_runner.services.paths import read_file
from ambient_runner.services.record import Rubric, WorkflowConfig

__all__ = ["read_config"]

logger = logging.getLogger(__name__)

_CONFIG = PurePosixPath(".ambient/ambient.json")
_RUBRIC = PurePosixPath(".ambient/rubric.md")
_LONGEST = 256 << 10
_NAMES_LOGGED = 10


def read_config(folder: Path) -> WorkflowConfig:
    """The configuration of the workflow in this folder; all empty when it has none. Blocks: call it in a thread.

    Raises: InvalidInput, saying where it is wrong.
    """
    data, text = _read(folder, _CONFIG), _read(folder, _RUBRIC)
    config = _parse(data) if data is not None else WorkflowConfig()
    if text is None:
        return config
    try:
        rubric = msgspec.structs.replace(config.rubric or Rubric(), text=text.decode())
    except UnicodeDecodeError as error:
        raise _wrong(_RUBRIC, f"it is not UTF-8: see byte {error.start}") from error
    return msgspec.structs.replace(config, rubric=rubric)


def _read(folder: Path, path: PurePosixPath) -> bytes | None:
    try:
        return read_file(folder, path, _LONGEST)
    except ValueError as error:
        raise _wrong(path, f"it {error}") from error


def _parse(data: bytes) -> WorkflowConfig:
    try:
        value: Any = loads(data)
        config = msgspec.convert(value, WorkflowConfig)
    except InvalidInput as error:
        raise _wrong(_CONFIG, error.message) from error
    except msgspec.ValidationError as error:
        raise _wrong(_CONFIG, str(error)) from error
    _warn_of_unknown(cast("dict[str, Any]", value))
    # The rubric's text is the other file's to say.
    rubric = msgspec.structs.replace(config.rubric, text="") if config.rubric else None
    return msgspec.structs.replace(config, rubric=rubric)


def _warn_of_unknown(value: dict[str, Any]) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(WorkflowConfig)}
    unknown = sorted(set(value) - known)
    if unknown:
        logger.warning(
            "A workflow has members that mean nothing here: %s", ", ".join(map(repr, unknown[:_NAMES_LOGGED]))
        )


def _wrong(path: PurePosixPath, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The workflow's {path} cannot be used: {reason.rstrip('.')}. Correct it there and choose the workflow again."
    )
