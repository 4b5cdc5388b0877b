"""What a workflow says about itself, in `.ambient/ambient.json` and `.ambient/rubric.md`. Read once, when it is chosen."""

from __future__ import annotations

import logging
from pathlib import Path, PurePosixPath
from typing import Any, cast

import msgspec

from ambient_runner.errors import InvalidInput, UnknownFile
from ambient_runner.protocol.strict_json import loads
from ambient_runner.services.paths import inside, open_file
from ambient_runner.services.state import Rubric, WorkflowConfig

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
        file = open_file(folder, path)
    except UnknownFile as error:
        # A link, a folder or a pipe is something there that is not read; only a missing file is no file.
        if (folder / path).exists() or (folder / path).is_symlink():
            raise _wrong(path, "it is not a plain file") from error
        return None
    with open(file, "rb") as opened:  # noqa: PTH123  an open file, not a path
        data = opened.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise _wrong(path, f"it is larger than {_LONGEST >> 10} KiB")
    return data


def _parse(data: bytes) -> WorkflowConfig:
    try:
        value: Any = loads(data)
        config = msgspec.convert(value, WorkflowConfig)
        if config.artifacts_dir:
            inside(config.artifacts_dir)
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
