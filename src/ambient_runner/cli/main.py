"""The `ambient` command. One module per verb; this one names them, and turns our errors into a sentence and an exit code.

`render.py` and `questions.py` are pure; the others open what they need, and leave it closed.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ambient_runner.cli import threads as stored
from ambient_runner.cli.doctor import examine
from ambient_runner.cli.run import converse
from ambient_runner.cli.serve import serve_agents
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError, RunnerError

__all__ = ["app", "main"]

ConfigOption = Annotated[
    Path | None,
    typer.Option(help="Settings file. Without it, ./ambient.toml is read if it is there.", show_default=False),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        help="Where threads are kept: sqlite:///path or memory://", show_default="sqlite:///.ambient/ambient.db"
    ),
]

app = typer.Typer(
    name="ambient",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Put any agent behind one durable, safe AG-UI endpoint.\n\n"
    "Begin with `ambient serve`, then talk to it at http://127.0.0.1:8000. "
    'Or stay in the terminal: `ambient run demo "weather Lisbon"`.',
)
threads_app = typer.Typer(no_args_is_help=True, help="Look at stored threads.")
app.add_typer(threads_app, name="threads")


def main() -> None:
    """Run the command line: exit code 2 for a wrong configuration, 1 for anything else that is refused or fails."""
    try:
        app()
    except RunnerError as error:
        typer.secho(error.message, err=True, fg=typer.colors.RED)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ambient-runner {version('ambient-runner')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None: ...


@app.command()
def serve(
    agents: Annotated[
        list[str] | None,
        typer.Argument(help="Registered names, or name=package.module:attribute.", show_default="demo"),
    ] = None,
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="0 picks a free one.", show_default="8000")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error", show_default="info")] = None,
) -> None:
    """Serve agents over HTTP.

    The first agent also answers at `/`; each has its own door at `/agents/NAME`.

    Examples:

    - `ambient serve`: the demo agent on port 8000

    - `ambient serve mine=my_project.agent:bridge --port 9000`: your own

    - `ambient serve demo mine=my_project.agent:make_bridge`: both
    """
    serve_agents(read_settings(config, host=host, port=port, store=store, log_level=log_level, agents=agents or None))


@app.command()
def run(
    agent: Annotated[str, typer.Argument(help="A registered name, or name=package.module:attribute.")],
    prompt: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    thread: Annotated[str | None, typer.Option(help="Go on with this thread.", show_default="a new one")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Talk to an agent in the terminal.

    Exit codes: 0 the agent answered, 1 the run failed, 130 it was stopped with Ctrl-C.

    Examples:

    - `ambient run demo help`: what the demo agent can show

    - `ambient run demo "approve deploy" --thread t1`: it asks you, and goes on

    - `git diff | ambient run mine=my_project.agent:bridge -`: a prompt from a pipe
    """
    words = _standard_input() if prompt == "-" else prompt
    # The terminal sends only what is new and keeps no history of its own, whatever the store.
    settings = read_settings(config, store=store, history="server")
    raise typer.Exit(converse(settings, agent, words, thread))


@threads_app.command("list")
def threads_list(store: StoreOption = None, config: ConfigOption = None, limit: int = 50) -> None:
    """List threads, newest first."""
    stored.show_list(read_settings(config, store=store), limit)


@threads_app.command("show")
def threads_show(thread: str, store: StoreOption = None, config: ConfigOption = None) -> None:
    """Show a thread's messages, state and open questions."""
    stored.show_thread(read_settings(config, store=store), thread)


@threads_app.command("tail")
def threads_tail(
    thread: str,
    after: Annotated[str | None, typer.Option(help="Begin after this cursor, the `id` of an event.")] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when no run is active.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Print a thread's entries as they are written: cursor, kind and body. Ctrl-C ends it."""
    stored.follow(read_settings(config, store=store), thread, after, until_idle)


@threads_app.command("export")
def threads_export(
    thread: str,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.", show_default="stdout")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a thread as JSON lines: {seq, ts, owner, kind, body}, one entry each."""
    stored.export(read_settings(config, store=store), thread, output)


@app.command()
def doctor(
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(show_default="8000")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Check this machine: versions, extras, the store and the port. Exit code 1 if something needs attention."""
    raise typer.Exit(examine(read_settings(config, host=host, port=port, store=store)))


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigError("Standard input is not text in this terminal's encoding. Send UTF-8.") from error
