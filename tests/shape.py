"""Figures about the source code: size, names and docstrings, side by side with an earlier revision. `make shape` prints them.

Exits with 1 when more function names than allowed are one word, or more docstrings than allowed open with What, Whether or How.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "src/ambient_runner"
MAX_ONE_WORD = 35.0
"""Percent of function names. Starlette has 29, httpx 34, the MCP SDK 23."""
MAX_INDIRECT = 5.0
"""Percent of docstrings."""
INDIRECT_OPENINGS = ("What", "Whether", "How")


@dataclass
class Shape:
    """What one revision looks like. `add_module` every module, then read `rows`."""

    modules: int = 0
    lines: int = 0
    function_lengths: list[int] = field(default_factory=list)
    function_names: list[str] = field(default_factory=list)
    docstring_openings: Counter[str] = field(default_factory=Counter)
    run_input_names: Counter[str] = field(default_factory=Counter)

    def add_module(self, source: str) -> None:
        self.modules += 1
        self.lines += source.count("\n")
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self._add_docstrings(node.body)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._add_function(node)

    def _add_docstrings(self, body: list[ast.stmt]) -> None:
        """Count the docstring of the body's owner, and those below its attributes and constants."""
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str) and text.strip():
                    self.docstring_openings[text.split(maxsplit=1)[0].rstrip(",.:;")] += 1

    def _add_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.function_lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
        if not node.name.startswith("__"):
            self.function_names.append(node.name.strip("_"))
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if argument.annotation is not None and _is_run_input(argument.annotation):
                self.run_input_names[argument.arg] += 1

    @property
    def one_word_percent(self) -> float:
        one_word = sum("_" not in name for name in self.function_names)
        return 100 * one_word / max(len(self.function_names), 1)

    @property
    def indirect_percent(self) -> float:
        indirect = sum(self.docstring_openings[word] for word in INDIRECT_OPENINGS)
        return 100 * indirect / max(self.docstring_openings.total(), 1)

    @property
    def rows(self) -> list[tuple[str, str]]:
        indirect = sum(self.docstring_openings[word] for word in INDIRECT_OPENINGS)
        names = ", ".join(f"{name} {count}" for name, count in self.run_input_names.most_common())
        return [
            ("modules", f"{self.modules:,}"),
            ("lines", f"{self.lines:,}"),
            ("functions", f"{len(self.function_lengths):,}"),
            ("lines of a function, median", f"{statistics.median(self.function_lengths):g}"),
            ("lines of a function, p90", f"{statistics.quantiles(self.function_lengths, n=10)[-1]:g}"),
            (f"one-word function names (at most {MAX_ONE_WORD:g} %)", f"{self.one_word_percent:.1f} %"),
            ("docstrings", f"{self.docstring_openings.total():,}"),
            (
                f"… that open with What, Whether, How (at most {MAX_INDIRECT:g} %)",
                f"{self.indirect_percent:.1f} % ({indirect})",
            ),
            ("names of a RunAgentInput parameter", names),
        ]


def _is_run_input(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation).strip("'\"").removesuffix(" | None")
    return text.split(".")[-1] in {"RunAgentInput", "AguiInput", "AguiRunInput"}


def current_shape() -> Shape:
    shape = Shape()
    for path in sorted((ROOT / SOURCE).rglob("*.py")):
        shape.add_module(path.read_text())
    return shape


def shape_at(revision: str) -> Shape:
    archive = subprocess.run(["git", "archive", revision, SOURCE], cwd=ROOT, check=True, capture_output=True).stdout
    shape = Shape()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            content = files.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                shape.add_module(content.read().decode())
    return shape


def print_table(columns: dict[str, Shape]) -> None:
    cells = [dict(shape.rows) for shape in columns.values()]
    labels = list(cells[0])
    widths = [
        max(len(name), *(len(column[label]) for label in labels)) for name, column in zip(columns, cells, strict=True)
    ]
    first = max(map(len, labels))
    print(" " * first, *(name.rjust(width) for name, width in zip(columns, widths, strict=True)), sep="  ")
    for label in labels:
        print(
            label.ljust(first),
            *(column[label].rjust(width) for column, width in zip(cells, widths, strict=True)),
            sep="  ",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="revision to compare with")
    base = parser.parse_args().base
    now = current_shape()
    print_table({base: shape_at(base), "now": now} if base else {"now": now})
    is_fine = now.one_word_percent <= MAX_ONE_WORD and now.indirect_percent <= MAX_INDIRECT
    if not is_fine:
        print(
            "Too many one-word names or indirect docstrings. See CONTRIBUTING.md, “Names and words”.", file=sys.stderr
        )
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
