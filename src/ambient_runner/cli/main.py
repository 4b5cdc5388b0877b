"""The `ambient` command: its subcommands, and the mapping from errors to a message and an exit code.

Each subcommand has a module, imported only when it is called: `ambient --version` and `--help` load no server. `render.py`,
`interrupt_form.py` and `interrupt_text.py` are pure; the others open the resources they need and close them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ambient_runner.cli.arguments import check_owner, check_text, check_thread_id, resolve_directory
from ambient_runner.cli.errors import EXIT_STOPPED, find_error
from ambient_runner.cli.stdio import OutputClosed, discard_output, read_message, use_standard_streams
from ambient_runner.cli.text_format import strip_control_chars
from ambient_runner.errors import ConfigError, RunnerError

if TYPE_CHECKING:
    from ambient_runner.config import Settings

__all__ = ["app", "main"]

ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings file. [default: ./ambient.toml, if it exists]"),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where threads are stored: sqlite:///path or memory://. [default: sqlite:///.ambient/ambient.db]",
    ),
]
CwdOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Existing directory that the agent works in. [default: a workspace for each thread]"
    ),
]
HostOption = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]")]
OwnerOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Whose threads: the owner that `authorize=` returns. [default: local]",
        callback=check_owner,
    ),
]
ThreadArgument = Annotated[str, typer.Argument(metavar="THREAD", help="Id of the thread.", callback=check_thread_id)]

app = typer.Typer(
    name="ambient",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Put any agent behind one durable, safe AG-UI endpoint.\n\n"
    "`ambient serve` starts the demo agent at http://127.0.0.1:8000. "
    '`ambient run demo "weather Lisbon"` runs it in the terminal.',
)
agents_app = typer.Typer(no_args_is_help=True, help="Command-line agents.")
app.add_typer(agents_app, name="agents")
db_app = typer.Typer(no_args_is_help=True, help="Maintain the database of a SQLite store.")
app.add_typer(db_app, name="db")
threads_app = typer.Typer(no_args_is_help=True, help="Read stored threads.")
app.add_typer(threads_app, name="threads")


def main() -> None:
    """Run the command line. Exits with 2 for an invalid configuration, with 1 for any other error, and with 130 if it was stopped.

    If the reader of its output has gone, as `head` does, it exits with 141.
    """
    try:
        with use_standard_streams():
            app()
    except (RunnerError, OutputClosed, BaseExceptionGroup) as raised:
        error = find_error(raised)
        if error is None:
            raise
        sys.exit(_report_error(error))


def _report_error(error: RunnerError | OutputClosed | KeyboardInterrupt) -> int:
    """Print the message of the error, if there is one, and return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_STOPPED
    if isinstance(error, OutputClosed):
        discard_output()
    if error.message:
        typer.secho(strip_control_chars(error.message), err=True, fg=typer.colors.RED)
    if isinstance(error, OutputClosed):
        return error.exit_code
    return 2 if isinstance(error, ConfigError) else 1


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        typer.echo(f"ambient-runner {version('ambient-runner')}")
        raise typer.Exit


@app.callback()
def root_options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None: ...


@app.command()
def serve(
    agents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT]...",
            help="Names from ambient.toml, registered names, name=package.module:attribute, name=URL or name=acp:COMMAND. "
            "[default: the agents in ambient.toml, or demo]",
        ),
    ] = None,
    host: HostOption = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port to listen on; 0 picks a free one. [default: 8000]")
    ] = None,
    cwd: CwdOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error. [default: info]")
    ] = None,
) -> None:
    """Serve agents over HTTP.

    The first agent also answers at `/`; every agent answers at `/agents/NAME`.

    \b
    Examples:
      ambient serve                                         the demo agent on port 8000
      ambient serve mine=my_project.agent:graph --port 9000 your own agent
      ambient serve demo mine=my_project.agent:graph        both
    """
    from ambient_runner.cli.garbage_collection import freeze_imported_modules

    with freeze_imported_modules():
        from ambient_runner.cli.serve import serve_agents

    serve_agents(
        _read_settings(
            _trusted_config(config, cwd),
            host=host,
            port=port,
            cwd=_path_text(cwd),
            store=store,
            log_level=log_level,
            agents=agents or None,
        )
    )


@app.command()
def run(
    agent: Annotated[
        str,
        typer.Argument(
            metavar="AGENT",
            help="A name from ambient.toml, a registered name, name=package.module:attribute, name=URL or name=acp:COMMAND.",
        ),
    ],
    prompt: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="The message to send; - reads it from standard input.")
    ],
    thread: Annotated[
        str | None,
        typer.Option(
            metavar="THREAD", help="Continue this thread instead of starting a new one.", callback=check_thread_id
        ),
    ] = None,
    cwd: CwdOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Run an agent in the terminal.

    Exit codes: 0 the run succeeded, 1 it failed, 3 nobody answered the agent, 130 it was stopped with Ctrl-C, SIGTERM or SIGHUP.

    \b
    Examples:
      ambient run demo help                             list the commands of the demo agent
      ambient run demo "approve deploy" --thread t1     answer an interrupt in the terminal
      git diff | ambient run mine=my_project.agent:graph -   read the message from a pipe
      ambient run codex "fix the failing test" --cwd .  a command-line agent in this folder
    """
    from ambient_runner.cli.run import run_conversation

    message = check_text(read_message(), "Standard input") if prompt == "-" else check_text(prompt, "The message")
    # The terminal sends only what is new and keeps no history of its own, whatever the store.
    file = _trusted_config(config, cwd)
    settings = _read_settings(file, cwd=_path_text(cwd), store=store, history="server", agents=[agent])
    raise typer.Exit(run_conversation(settings, agent, message, thread))


@agents_app.command("login")
def agents_login(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name from ambient.toml, a profile such as codex, or name=acp:COMMAND."),
    ],
    config: ConfigOption = None,
) -> None:
    """Sign a command-line agent in on this machine, in one of the ways that it offers."""
    from ambient_runner.cli.agent_login import login_agent

    login_agent(_read_settings(config, agents=[name]), name)


@agents_app.command("sessions")
def agents_sessions(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name from ambient.toml, a profile such as codex, or name=acp:COMMAND."),
    ],
    cwd: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only sessions in this directory. [default: all of them]")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """List the sessions that a command-line agent has in your own home."""
    from ambient_runner.cli.agent_sessions import list_sessions

    raise typer.Exit(list_sessions(_read_settings(config, agents=[name]), name, resolve_directory(cwd)))


@threads_app.command("list")
def threads_list(
    owner: OwnerOption = None,
    everyone: Annotated[bool, typer.Option("--all", help="List the threads of every owner.")] = False,
    limit: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=1_000_000, help="List at most N threads. [default: 50]", show_default=False
        ),
    ] = 50,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List threads, newest first."""
    from ambient_runner.cli.threads import list_threads

    list_threads(_read_settings(config, store=store), owner, everyone, limit)


@threads_app.command("show")
def threads_show(
    thread: ThreadArgument, owner: OwnerOption = None, store: StoreOption = None, config: ConfigOption = None
) -> None:
    """Show a thread's messages, state and open interrupts."""
    from ambient_runner.cli.threads import show_thread

    show_thread(_read_settings(config, store=store), thread, owner)


@threads_app.command("tail")
def threads_tail(
    thread: ThreadArgument,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Start after this cursor, the `id` of an event.")
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when no run is active.")] = False,
    owner: OwnerOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Print a thread's entries as they are written: cursor, kind and body. Ctrl-C ends it."""
    from ambient_runner.cli.threads import tail_thread

    tail_thread(_read_settings(config, store=store), thread, owner, after, until_idle)


@threads_app.command("export")
def threads_export(
    thread: ThreadArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write. [default: standard output]")
    ] = None,
    audience: Annotated[
        str | None,
        typer.Option(
            metavar="AUDIENCE",
            help="open or safe. [default: the setting, or open]",
        ),
    ] = None,
    owner: OwnerOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write a thread as JSON lines: {seq, ts, owner, kind, body}, one entry each."""
    from ambient_runner.cli.threads import export_thread

    export_thread(_read_settings(config, store=store), thread, owner, output, audience)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write. It must not exist.")],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Copy a SQLite store to a file, also while a server writes to it.

    Copying the database file with `cp` loses what is still in its write-ahead log.
    """
    from ambient_runner.cli.backup import backup_store

    backup_store(_read_settings(config, store=store), file)


@db_app.command("new-epoch")
def db_new_epoch(store: StoreOption = None, config: ConfigOption = None) -> None:
    """Make all cursors invalid, after a backup was restored and before a server is started on it.

    A cursor from after the backup would otherwise lead to other events once its thread has grown again.
    """
    from ambient_runner.cli.backup import invalidate_cursors

    invalidate_cursors(_read_settings(config, store=store))


@app.command()
def playback(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Recording: one JSON object with t, dir and msg per line.")
    ],
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=0.001, help="Keep the recorded times, N times as fast. [default: as fast as possible]"
        ),
    ] = None,
) -> None:
    """Play a recording as an agent of the Agent Client Protocol, on standard input and output.

    What the client sends otherwise than recorded is reported on standard error.

    \b
    Example:
      ambient run "mine=acp:ambient playback recording.jsonl" "say hello"
    """
    from ambient_runner.cli.playback import play_recording

    play_recording(file, speed)


@app.command()
def doctor(
    host: HostOption = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port to check. [default: 8000]")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Check this machine: versions, extras, configured agents and middleware, the store and the port.

    Exit code 1 if something required is missing.
    """
    from ambient_runner.cli.doctor import run_checks

    raise typer.Exit(run_checks(_read_settings(config, host=host, port=port, store=store)))


def _read_settings(file: Path | None, **values: Any) -> Settings:
    """Return the settings: those of the command line, then the environment, then the file. Raises: ConfigError."""
    from ambient_runner.config import read_settings

    return read_settings(file, **values)


def _trusted_config(config: Path | None, cwd: Path | None) -> Path | None:
    """Return the settings file to read. One in the agent's own directory is read only if it is named: the agent could have written it."""
    from ambient_runner.config import CONFIG_FILE

    default = Path(CONFIG_FILE)
    if config is not None or cwd is None or not default.is_file():
        return config
    if not default.resolve().is_relative_to(cwd.resolve()):
        return config
    typer.secho(f"{default} is not read: the agent can change it. Use --config {default} if you trust it.", err=True)
    return Path(os.devnull)


def _path_text(path: Path | None) -> str | None:
    return None if path is None else str(path)
