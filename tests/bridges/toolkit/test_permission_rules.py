"""Permission rules against calls. A28: no text that a model writes makes a rule allow more than it names."""

from __future__ import annotations

import shlex
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ambient_runner.bridges.toolkit import permission_rules
from ambient_runner.bridges.toolkit.permission_rules import (
    Decision,
    RequestedCall,
    Resolve,
    has_restrictions,
    resolve_path,
)
from ambient_runner.config import PermissionRule
from ambient_runner.config.permission_rules import Behavior

STATUS = PermissionRule(tool="Bash", command=("git", "status"), decide="allow")
ANY_STATUS = PermissionRule(command=("git", "status", "*"), decide="allow")
NO_RM = PermissionRule(command=("rm",), decide="deny")
NO_PUSH = PermissionRule(command=("git", "push"), decide="deny")


def decide(rules: Iterable[PermissionRule], call: RequestedCall, resolve: Resolve = resolve_path) -> Behavior | None:
    decision = permission_rules.decide(rules, call, resolve)
    return decision.behavior if decision else None


def shell(command: str, **more: object) -> RequestedCall:
    return RequestedCall(**{"agent": "a", "cwd": "/ws", "tool": "Bash", "kind": "execute", "command": command, **more})  # type: ignore[arg-type]


def edit(*paths: str, **more: object) -> RequestedCall:
    return RequestedCall(**{"agent": "a", "cwd": "/ws", "tool": "Edit", "kind": "edit", "paths": paths, **more})  # type: ignore[arg-type]


TRICKS = {
    "second command": "git status; rm -rf x",
    "and": "git status && rm -rf x",
    "or": "git status || rm -rf x",
    "pipe": "git status | sh",
    "background": "git status & rm -rf x",
    "substitution": "git status $(rm -rf x)",
    "backticks": "git status `rm -rf x`",
    "variable": "git status $X",
    "braces": "git status ${X}",
    "process substitution": "git status <(rm x)",
    "redirection": "git status > /etc/passwd",
    "append": "git status >>x",
    "input": "git status < x",
    "here document": "git status <<x",
    "newline": "git status\nrm -rf x",
    "newline at the end": "git status\n",
    "carriage return": "git status\rrm",
    "tab": "git\tstatus",
    "null": "git status\0",
    "escape": "git status\x1b",
    "delete": "git status\x7f",
    "no-break space": "git\u00a0status",
    "em space": "git\u2003status",
    "ideographic space": "git\u3000status",
    "line separator": "git status\u2028rm",
    "next line": "git status\u0085rm",
    "zero width space": "git\u200b status",
    "byte order mark": "\ufeffgit status",
    "full width": "git status\uff1brm",
    "cyrillic": "git st\u0430tus",
    "variable before": "GIT_PAGER=rm git status",
    "two variables before": "A=1 B=2 git status",
    "env": "env git status",
    "relative program": "./git status",
    "relative program in a folder": "bin/git status",
    "parent program": "../git status",
    "absolute program": "/tmp/git status",
    "home program": "~/git status",
    "double quotes": 'git "status"',
    "single quotes": "git 'status'",
    "quoted program": '"git" status',
    "dollar quotes": "git $'status'",
    "backslash": "git\\ status",
    "escaped program": "\\git status",
    "line continuation": "git \\\nstatus",
    "star": "git status *",
    "question mark": "git statu?",
    "brackets": "git [s]tatus",
    "tilde": "git status ~",
    "brace expansion": "git {status,push}",
    "history": "git status !!",
    "comment": "git status #x",
    "equals expansion": "git =status",
    "more words": "git status --porcelain",
    "fewer words": "git",
    "other option": "git -C / status",
    "other case": "Git Status",
    "space before": " git status",
    "space after": "git status ",
    "empty": "",
    "open quote": "git status '",
    "only a space": " ",
}


@pytest.mark.parametrize("command", TRICKS.values(), ids=TRICKS)
def test_a28_a_command_that_is_not_exactly_the_words_matches_no_allow_rule(command: str) -> None:
    assert decide([STATUS], shell(command)) is None


@pytest.mark.parametrize("name", [name for name in TRICKS if name not in ("more words", "fewer words", "other case")])
def test_a28_further_words_are_allowed_only_if_every_shell_reads_them_literally(name: str) -> None:
    assert decide([ANY_STATUS], shell(TRICKS[name])) is None


def test_a28_a_command_of_exactly_the_words_is_allowed() -> None:
    assert decide([STATUS], shell("git status")) == "allow"
    assert decide([STATUS], shell("git   status")) == "allow"
    assert decide([ANY_STATUS], shell("git status")) == "allow"
    assert decide([ANY_STATUS], shell("git status --porcelain=v2 src/a.py")) == "allow"


def test_a28_a_rule_with_a_path_as_program_fits_that_path_only() -> None:
    rule = PermissionRule(command=("/usr/bin/git", "status"), decide="allow")
    assert decide([rule], shell("/usr/bin/git status")) == "allow"
    assert decide([rule], shell("git status")) is None
    assert decide([rule], shell("/tmp/usr/bin/git status")) is None


def test_a28_a_command_in_another_directory_is_not_allowed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "ws" / "sub", tmp_path / "other"
    inside.mkdir(parents=True)
    outside.mkdir()
    (tmp_path / "ws" / "link").symlink_to(outside)
    for directory, decision in (
        ("", "allow"),
        (str(inside), "allow"),
        ("sub", "allow"),
        ("link", None),
        ("..", None),
        (str(outside), None),
    ):
        assert decide([STATUS], shell("git status", cwd=str(tmp_path / "ws"), directory=directory)) == decision


def test_a28_a_command_that_is_only_possible_is_not_allowed() -> None:
    call = shell("", possible_commands=("git status",))
    assert decide([STATUS], call) is None
    assert decide([PermissionRule(command=("git",), decide="ask")], call) == "ask"


METACHARACTERS = ";&|<>(){}$`\"'\\*?[]~!#^%\n\r\t\0\x0b\x0c\x1b\x7f\u0085\u00a0\u2028\u2029\u3000\u200b\uff1b"
WORDS = st.text(string.ascii_letters + string.digits + "-_./", min_size=1, max_size=8)
COMMANDS = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)


@given(command=COMMANDS, character=st.sampled_from(METACHARACTERS), data=st.data())
def test_a28_no_command_with_a_metacharacter_is_ever_allowed(command: str, character: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(command)))
    changed = command[:position] + character + command[position:]
    words = tuple(changed.split())
    rules = [
        PermissionRule(command=(*words[:1], "*"), decide="allow"),
        PermissionRule(command=words, decide="allow"),
        PermissionRule(command=tuple(command.split()), decide="allow"),
        PermissionRule(command=(command.split()[0], "*"), decide="allow"),
    ]
    assert decide(rules, shell(changed)) is None


@given(text=st.text(max_size=40), words=st.lists(st.text(max_size=8), max_size=4))
def test_a28_whatever_is_allowed_consists_of_plain_words(text: str, words: list[str]) -> None:
    rules = [
        PermissionRule(command=tuple(words), decide="allow"),
        PermissionRule(command=(*words, "*"), decide="allow"),
    ]
    assume(words)
    if decide(rules, shell(text)) == "allow":
        assert set(text) <= set(string.ascii_letters + string.digits + "_./:@+,=- ")
        assert shlex.split(text)[: len(words)] == words


@given(command=st.lists(st.sampled_from([*METACHARACTERS, *"ab=- ", "git", "status"]), max_size=8).map("".join))
def test_a28_what_is_allowed_is_read_by_a_shell_as_the_words_of_the_rule(command: str) -> None:
    assert decide([STATUS], shell(command)) in (None, "allow")
    if decide([STATUS], shell(command)) == "allow":
        assert shlex.split(command) == ["git", "status"]


@given(words=st.lists(WORDS, min_size=1, max_size=4), more=st.lists(WORDS, max_size=3))
def test_a28_a_plain_command_is_allowed_by_its_own_words(words: list[str], more: list[str]) -> None:
    command = " ".join([*words, *more])
    assert decide([PermissionRule(command=(*words, "*"), decide="allow")], shell(command)) == "allow"
    exact = decide([PermissionRule(command=tuple(words), decide="allow")], shell(command))
    assert exact == (None if more else "allow")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x",
        "/bin/rm x",
        "./rm x",
        "../bin/rm x",
        "ls; rm x",
        "ls&&rm x",
        "ls|rm",
        "ls\nrm x",
        "ls $(rm x)",
        "ls `rm x`",
        "(rm x)",
        "{ rm x; }",
        "FOO=1 rm x",
        "env FOO=1 rm x",
        "sudo -n rm x",
        "bash -c 'rm x'",
        'bash -c "cd x && rm y"',
        "r\\m x",
        "'rm' x",
        'r"m" x',
        "\\rm x",
        "rm\u00a0x",
        "rm\tx",
        "rm${IFS}x",
        "xargs rm < list",
        "find . -exec rm {} +",
        "if true; then rm x; fi",
        "$(echo r)m x",
        "$X -rf x",
        "${X} x",
        "$'\\x72m' x",
        "/bin/r? x",
        "/bin/[r]m x",
        "sudo $X",
        "eval $X",
        "ls; $X",
        "ls; FOO=1 $X",
        "RM x",
        ">out rm x",
        "echo rm",
    ],
)
def test_a28_a_deny_rule_fits_whatever_could_be_the_command(command: str) -> None:
    assert decide([NO_RM, PermissionRule(kind="execute", decide="allow")], shell(command)) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "rmdir x",
        "git commit",
        "echo $HOME",
        "for i in 1 2; do echo line $i; done",
        "ls *",
        "[ -f x ] && ls",
        "cat a/b",
    ],
)
def test_a_deny_rule_does_not_fit_other_commands(command: str) -> None:
    assert decide([NO_RM], shell(command)) is None


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("git push", "deny"),
        ("git push --force", "deny"),
        ("git -C x push", "deny"),
        ("git $(echo push)", "deny"),
        ("git pull", None),
        ("push git", None),
    ],
)
def test_the_words_of_a_deny_rule_may_have_others_between_them(command: str, decision: str | None) -> None:
    assert decide([NO_PUSH], shell(command)) == decision


@given(command=st.text(max_size=60))
def test_a28_no_text_breaks_a_rule(command: str) -> None:
    decide(
        [NO_RM, NO_PUSH, STATUS, PermissionRule(path="secrets", decide="deny")],
        shell(command),
        resolve=lambda path: path,
    )


def test_a_very_long_command_is_never_allowed_and_could_be_any() -> None:
    command = f"git status {'x' * 100_000}"
    assert decide([ANY_STATUS], shell(command)) is None
    assert decide([NO_RM], shell(command)) == "deny"
    assert decide([PermissionRule(path="secrets", decide="ask")], shell(command)) == "ask"


def test_an_unknown_command_could_be_the_one_that_is_denied() -> None:
    assert decide([NO_RM], shell("")) == "deny"
    assert decide([NO_RM], edit("a.txt")) is None


def test_the_strictest_rule_that_fits_wins_in_any_order() -> None:
    behaviors: tuple[Behavior, ...] = ("allow", "ask", "deny")
    rules = {name: PermissionRule(tool="Bash", decide=name) for name in behaviors}
    cases: list[tuple[tuple[Behavior, ...], Behavior | None]] = [
        (("allow", "ask", "deny"), "deny"),
        (("deny", "ask", "allow"), "deny"),
        (("ask", "allow"), "ask"),
        (("allow", "ask"), "ask"),
        (("allow",), "allow"),
        ((), None),
    ]
    for names, winner in cases:
        chosen = [rules[name] for name in names]
        expected = Decision(winner, rules[winner]) if winner else None
        assert permission_rules.decide(chosen, shell("ls")) == expected


def test_all_conditions_of_a_rule_must_fit() -> None:
    rule = PermissionRule(tool="Bash", kind="execute", agent="a", command=("ls",), decide="allow")
    assert decide([rule], shell("ls")) == "allow"
    for other in (
        shell("ls", tool="Shell"),
        shell("ls", kind="other"),
        shell("ls", agent="b"),
        shell("ls", agent=""),
        shell("ls", tool=""),
        shell("ls", kind=""),
    ):
        assert decide([rule], other) is None


@pytest.mark.parametrize("name", ["bash", "Bash2", "XBash", "Bash ", ""])
def test_a_tool_is_allowed_by_its_exact_name(name: str) -> None:
    assert decide([PermissionRule(tool="Bash", decide="allow")], shell("ls", tool=name)) is None


def test_a_name_with_a_star_fits_all_that_begin_so() -> None:
    rule = PermissionRule(tool="mcp__github__*", decide="allow")
    assert decide([rule], shell("", tool="mcp__github__list")) == "allow"
    assert decide([rule], shell("", tool="mcp__githubx__list")) is None


def test_a_possible_name_or_kind_is_enough_to_ask_and_not_to_allow() -> None:
    call = RequestedCall(agent="a", cwd="/ws", possible_tools=("run_shell_command",), possible_kinds=("execute",))
    conditions: list[dict[str, Any]] = [{"tool": "run_shell_command"}, {"tool": "run_*"}, {"kind": "execute"}]
    for condition in conditions:
        assert decide([PermissionRule(**condition, decide="ask")], call) == "ask"
        assert decide([PermissionRule(**condition, decide="allow")], call) is None


def test_a_rule_of_another_agent_does_not_fit_and_an_unknown_agent_could_be_any() -> None:
    for behavior, of_other, of_unknown in (("allow", None, None), ("ask", None, "ask"), ("deny", None, "deny")):
        rule = PermissionRule(agent="codex", tool="Bash", decide=behavior)  # type: ignore[arg-type]
        assert decide([rule], shell("ls", agent="codex")) == behavior
        assert decide([rule], shell("ls", agent="gemini")) == of_other
        assert decide([rule], shell("ls", agent="")) == of_unknown


@pytest.mark.parametrize("behavior", ["allow", "ask", "deny"])
def test_a_question_to_a_person_is_never_answered_by_a_rule(behavior: str) -> None:
    call = shell("ls", tool="AskUserQuestion", is_question=True)
    assert decide([PermissionRule(decide=behavior), PermissionRule(tool="*", decide=behavior)], call) is None  # type: ignore[arg-type]


def test_a_call_that_asks_for_a_wider_sandbox_is_not_allowed_by_a_rule_but_may_be_denied() -> None:
    call = shell("ls", is_escalation=True)
    assert decide([PermissionRule(tool="Bash", decide="allow")], call) is None
    assert decide([PermissionRule(tool="Bash", decide="deny")], call) == "deny"


DOCS = PermissionRule(path="docs", decide="allow")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a folder `docs`, links that lead out of it, and one that leads into it."""
    root = tmp_path / "ws"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "src").mkdir()
    (tmp_path / "outside").mkdir()
    (root / "docs" / "out").symlink_to(tmp_path / "outside")
    (root / "docs" / "file.txt").symlink_to(root / "src" / "main.py")
    (root / "docs" / "loop").symlink_to(root / "docs" / "loop")
    (root / "manual").symlink_to(root / "docs")
    (root / "src" / "deep").symlink_to(root / "docs" / "deep")
    return root


@pytest.mark.parametrize(
    ("path", "decision"),
    [
        ("docs/a.txt", "allow"),
        ("docs", "allow"),
        ("./docs//deep/../a.txt", "allow"),
        ("manual/a.txt", "allow"),
        ("src/../docs/a.txt", "allow"),
        ("docs/new/deeper/a.txt", "allow"),
        ("docs/../src/a.txt", None),
        ("docs/out/a.txt", None),
        ("docs/out/../src/a.txt", None),
        ("src/deep/../a.txt", None),
        ("src/deep/a.txt", "allow"),
        ("docs/file.txt", None),
        ("docsx/a.txt", None),
        ("../docs/a.txt", None),
        ("/docs/a.txt", None),
        ("/etc/passwd", None),
        ("docs\0/a.txt", None),
        ("~/docs/a.txt", None),
        ("docs/a b.txt", "allow"),
        ("docs/é.txt", "allow"),
        ("docs/a.txt ", None),
        ("docs/a.txt\n", None),
        ("", None),
    ],
)
def test_a28_a_path_is_compared_after_links_and_parents_are_resolved(
    workspace: Path, path: str, decision: str | None
) -> None:
    assert decide([DOCS], edit(path, cwd=str(workspace))) == decision
    if not path.startswith(("/", "~", "docs\0")):
        assert decide([DOCS], edit(f"{workspace}/{path}", cwd=str(workspace))) == decision


@pytest.mark.parametrize(
    "path", ["~/a", "~root/a", " /etc/passwd", "/ws/a ", "@/etc/passwd", "file:///etc/passwd", '"/etc/passwd"', "a\n"]
)
def test_a28_a_path_that_an_agent_may_read_differently_is_not_allowed(path: str) -> None:
    assert decide([PermissionRule(path="/", decide="allow")], edit(path)) is None
    assert decide([PermissionRule(path="/home", decide="deny")], edit(path)) == "deny"


def test_a28_every_path_of_a_call_must_be_in_the_folder(workspace: Path) -> None:
    assert decide([DOCS], edit("docs/a", "docs/b", cwd=str(workspace))) == "allow"
    assert decide([DOCS], edit("docs/a", "src/b", cwd=str(workspace))) is None


def test_a28_without_a_known_path_a_rule_with_a_path_allows_nothing(workspace: Path) -> None:
    for call in (
        edit(cwd=str(workspace)),
        edit(cwd=str(workspace), possible_paths=("docs/a",)),
        shell("cat docs/a", cwd=str(workspace)),
    ):
        assert decide([DOCS], call) is None


def test_a_folder_may_be_absolute_or_the_working_directory(workspace: Path) -> None:
    for path in (str(workspace), ".", f"{workspace}/", str(workspace / "docs" / "..")):
        rule = PermissionRule(path=path, decide="allow")
        assert decide([rule], edit("src/a", cwd=str(workspace))) == "allow"
        assert decide([rule], edit("../outside/a", cwd=str(workspace))) is None
    everything = PermissionRule(path="/", decide="allow")
    assert decide([everything], edit("/etc/passwd", cwd=str(workspace))) == "allow"


def test_paths_are_resolved_by_the_given_function_alone() -> None:
    real = {"/ws/docs": "/real", "/ws/a": "/real/a", "/ws/b": "/elsewhere"}
    assert decide([DOCS], edit("a"), resolve=real.get) == "allow"
    assert decide([DOCS], edit("b"), resolve=real.get) is None
    assert decide([DOCS], edit("unknown"), resolve=real.get) is None
    deny = PermissionRule(path="docs", decide="deny")
    assert decide([deny], edit("unknown"), resolve=real.get) == "deny"
    assert decide([deny], edit("b"), resolve=real.get) is None


def test_a_relative_path_without_a_working_directory_is_not_allowed() -> None:
    assert decide([DOCS], edit("docs/a", cwd="")) is None


SECRETS = PermissionRule(path="secrets", decide="deny")


@pytest.mark.parametrize(
    ("call", "decision"),
    [
        (edit("secrets/key"), "deny"),
        (edit("a", "secrets/key"), "deny"),
        (edit("a"), None),
        (edit(), "deny"),
        (edit(possible_paths=("secrets/key",)), "deny"),
        (edit(possible_paths=("a",)), None),
        (edit(".", kind="search"), "deny"),
        (edit(".", kind="delete"), "deny"),
        (edit(".", kind="read"), None),
        (edit(kind="fetch"), None),
        (shell("cat secrets/key"), "deny"),
        (shell("cat ./x/../secrets/key"), "deny"),
        (shell("cat 'secrets/key'"), "deny"),
        (shell("tool --file=secrets/key"), "deny"),
        (shell("cd secrets && cat key"), "deny"),
        (shell("cat key", directory="secrets"), "deny"),
        (shell("cat key", directory="/ws/secrets"), "deny"),
        (shell("cat key", directory="src"), None),
        (shell("cat a"), None),
        (shell("ls -la +x @y :z *.py 'a b' \"c\""), None),
        (shell("cat ~/key"), "deny"),
        (shell("curl https://example.com/secrets"), None),
        (shell("curl file:///ws/secrets/key"), "deny"),
        (shell(" ".join(map(str, range(1000)))), "deny"),
    ],
)
def test_a_path_that_is_denied_is_found_wherever_a_call_names_it(call: RequestedCall, decision: str | None) -> None:
    assert decide([SECRETS], call) == decision


def test_restrictions_are_rules_that_ask_or_deny_for_the_agent() -> None:
    assert not has_restrictions([STATUS], "a")
    assert has_restrictions([STATUS, NO_RM], "a")
    assert has_restrictions([PermissionRule(agent="a", decide="ask")], "a")
    assert not has_restrictions([PermissionRule(agent="b", decide="ask")], "a")
