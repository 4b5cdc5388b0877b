"""Examples of published packages, run with only the import changed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType


def load_example(package: str, name: str) -> ModuleType:
    """Return the example in `tests/compat/PACKAGE`, with its import of the package changed to ours."""
    source = (Path(__file__).parent / package / f"{name}.py").read_text()
    changed = source.replace(f"from {package}", f"from ambient_runner.compat.{package}")
    module = ModuleType(name)
    exec(compile(changed, name, "exec"), vars(module))
    return module
