"""The launch of an agent process for a run: its command, variables, directories, isolation and tools.

A running process serves another run only if both have the same launch. `session_options.py` has what can be changed in a session.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.bridges.acp.client_tools import ToolRelay, is_reserved_server, offered_tools
from ambient_runner.bridges.acp.home import AgentHome, find_home
from ambient_runner.bridges.acp.isolation import GATEWAY_URL, PLACEHOLDER, Isolation, choose_isolation
from ambient_runner.bridges.acp.profiles import ModelAccess, Profile
from ambient_runner.bridges.acp.run_input import requested_options
from ambient_runner.bridges.acp.session_options import SessionOptions, build_options
from ambient_runner.bridges.acp.working_directory import find_directory, is_bound_directory
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.permission_rules import has_restrictions
from ambient_runner.processes.gateway import ModelGateway
from ambient_runner.processes.sandbox import sandboxed_command
from ambient_runner.processes.socket_directory import make_socket_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AsyncExitStack

    from ambient_runner.bridges.acp.memory import ACPMemory
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.toolkit.pending_calls import PendingCalls
    from ambient_runner.bridges.toolkit.run_context import RunContext
    from ambient_runner.config.permission_rules import PermissionRule
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.protocol.events import Tool

__all__ = ["Launch", "StartedResources", "build_erasure_launch", "build_launch"]

_PLATFORM_VARIABLES = frozenset({"GIT_CEILING_DIRECTORIES"})
"""Variables that this server adds to those granted to a run. They are nobody's secrets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedResources:
    """Resources of a process: the command to start it with, and the relay of the client's tools."""

    command: tuple[str, ...]
    relay: ToolRelay | None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything that distinguishes one process from another. Processes with equal launches are interchangeable."""

    profile: Profile = field(repr=False)
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    cwd: str
    directories: tuple[str, ...] = ()
    """Other directories that the agent may work in."""
    home: AgentHome
    isolation: Isolation
    mcp_servers: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    client_tools: tuple[Tool, ...] = ()
    agent: str = field(default="", compare=False)
    """Name of the agent on this server, for permission rules."""
    bound_directory: str = field(default="", compare=False)
    """The directory if the thread is bound to it; empty for the thread's workspace."""
    audience: str = field(default="open", compare=False)
    """The audience of the agent's clients."""
    hidden: tuple[str, ...] = field(default=(), compare=False)
    """Paths of the server that do not exist in the sandbox."""
    is_shareable: bool = field(default=False, compare=False)
    """True if nothing in it belongs to the thread or was granted to its actor, so that other threads can have an equal launch."""
    instructions: str = field(default="", compare=False, repr=False)
    options: SessionOptions = field(compare=False)
    permissions: tuple[PermissionRule, ...] = field(default=(), compare=False)

    def can_serve(self, other: Launch) -> bool:
        """Return True if a process that was started with this launch, and has no session yet, can be used for the other one.

        MCP servers and, without a sandbox, further directories are parameters of the session. What is fixed at the start, but is the
        same for all runs of a thread, counts too.
        """
        directories = self.directories if self.isolation.has_sandbox else other.directories
        is_equal = replace(self, mcp_servers=other.mcp_servers, directories=directories) == other
        return is_equal and (self.audience, self.hidden) == (other.audience, other.hidden)

    def secret_values(self, secrets: Secrets) -> list[str]:
        """Return the values of variables that contain a known secret, and the key."""
        key = [self.isolation.key] if self.isolation.key else []
        return [*key, *(value for value in self.environment.values() if secrets.contains_secret(value))]

    async def open_resources(
        self, stack: AsyncExitStack, calls: PendingCalls, on_refused: Callable[[str], None]
    ) -> StartedResources:
        """Write the home directory, and start the relay and the gateway. `stack` ends them. Raises: OSError, BridgeError."""
        await anyio.to_thread.run_sync(self.home.write)
        directory = await anyio.to_thread.run_sync(make_socket_directory)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        relay = ToolRelay(self.client_tools, calls, directory) if self.client_tools else None
        if relay is not None:
            stack.push_async_callback(relay.aclose)
            await relay.start()
        if not self.isolation.has_sandbox:
            return StartedResources(command=self.command, relay=relay)
        gateway = await self._start_gateway(stack, directory, on_refused)
        sandbox = self.isolation.build_sandbox(
            self.command,
            cwd=self.cwd,
            directories=self.directories,
            home=self.home,
            profile=self.profile,
            hidden=self.hidden,
            sockets=[relay.socket_path] if relay is not None else [],
            gateway=gateway,
            search_path=self.environment.get("PATH"),
        )
        command = await anyio.to_thread.run_sync(sandboxed_command, self.command, sandbox)
        return StartedResources(command=tuple(command), relay=relay)

    def session_params(self, capabilities: Mapping[str, Any], relay: ToolRelay | None) -> dict[str, Any]:
        """Return the parameters of a session. `capabilities` are the agent's."""
        abilities = as_object(capabilities.get("sessionCapabilities"))
        http = as_object(capabilities.get("mcpCapabilities")).get("http") is True
        own = [relay.mcp_server()] if relay is not None else []
        params: dict[str, Any] = {"cwd": self.cwd, "mcpServers": [*own, *_mcp_servers(self.mcp_servers, http=http)]}
        if self.directories and "additionalDirectories" in abilities:
            params["additionalDirectories"] = list(self.directories)
        return params

    async def _start_gateway(
        self, stack: AsyncExitStack, directory: Path, on_refused: Callable[[str], None]
    ) -> Path | None:
        if self.isolation.network != "gateway":
            return None
        gateway = ModelGateway(
            base_url=self.isolation.base_url or None,
            headers=self.isolation.gateway_headers(self.profile),
            placeholder=PLACEHOLDER,
            hosts=self.isolation.hosts,
            on_refused=on_refused,
        )
        stack.push_async_callback(gateway.aclose)
        await gateway.start(directory)
        return gateway.socket_path


def build_launch(shared: ACPBridgeState, ctx: PlatformContext, context: RunContext, memory: ACPMemory) -> Launch:
    """Return the launch that a run needs."""
    config, profile = shared.config, shared.profile
    granted = context.run.environment if context.run is not None else {}
    variables = {**profile.variables, **shared.base_variables, **granted}
    agent = context.run.agent if context.run is not None else ""
    asks = has_restrictions(ctx.permissions, agent)
    has_key = bool(profile.key_variable and variables.get(profile.key_variable))
    home = find_home(config, profile, ctx, variables.get("HOME", ""), has_key=has_key)
    options = build_options(config, context, ctx.model or profile.default_model, asks=asks)
    if options.agent_mode.files and not home.is_own:  # The mode is a file, and the user's own home is not written to.
        options = build_options(config, context, ctx.model or profile.default_model, asks=True)
    isolation = choose_isolation(config, profile, options.mode, variables)
    client_tools = tuple(offered_tools(context.run_input.tools))
    access = _model_access(profile, isolation, variables, options.model)
    access = replace(access, has_client_tools=bool(client_tools))
    if home.is_own:
        home = replace(home, files=_merge_files(profile, access, options))
        options = replace(options, model=_provider_model(profile, access))
    cwd = find_directory(requested_options(context.run_input).get("cwd"), config, ctx, memory)
    is_bound = is_bound_directory(cwd, ctx)
    return Launch(
        profile=profile,
        command=_add_model(config.base_command, profile, options.model),
        environment={
            **variables,
            **options.agent_mode.variables,
            **home.variables(profile),
            **_access_variables(profile, isolation),
            "PWD": cwd,
        },
        cwd=cwd,
        directories=tuple(directory for directory in ctx.add_dirs if directory != cwd),
        home=home,
        isolation=isolation,
        mcp_servers=ctx.mcp_servers,
        client_tools=client_tools,
        agent=agent,
        bound_directory=cwd if is_bound else "",
        audience=ctx.audience,
        hidden=tuple(ctx.hidden_paths),
        is_shareable=is_bound
        and not home.is_own
        and not (isolation.has_sandbox and _has_thread_directory(ctx))
        and granted.keys() <= _PLATFORM_VARIABLES,
        instructions=ctx.operator_prompt if is_bound else ctx.system_prompt_append,
        options=options,
        permissions=tuple(ctx.permissions),
    )


def build_erasure_launch(launch: Launch, shared: ACPBridgeState) -> Launch:
    """Return the launch of a process that only deletes sessions which were made with `launch`: without tools and granted variables."""
    config, profile = shared.config, shared.profile
    variables = {**profile.variables, **shared.base_variables}
    isolation = choose_isolation(config, profile, config.mode, variables)
    return replace(
        launch,
        environment={
            **variables,
            **launch.home.variables(profile),
            **_access_variables(profile, isolation),
            "PWD": launch.cwd,
        },
        directories=(),
        isolation=isolation,
        mcp_servers={},
        client_tools=(),
        instructions="",
    )


def _has_thread_directory(ctx: PlatformContext) -> bool:
    """Return True if one of the other directories is in the workspace of the thread."""
    return bool(ctx.workspace_path) and any(Path(item).is_relative_to(ctx.workspace_path) for item in ctx.add_dirs)


def _add_model(command: tuple[str, ...], profile: Profile, model: str) -> tuple[str, ...]:
    return (*command, profile.model_argument, model) if profile.model_argument and model else command


def _model_access(profile: Profile, isolation: Isolation, variables: Mapping[str, str], model: str) -> ModelAccess:
    """Return the model, its URL and its key as the agent sees them."""
    if isolation.hides_key:
        return ModelAccess(base_url=GATEWAY_URL, key=PLACEHOLDER, model=model)
    key = variables.get(profile.key_variable, "") if profile.key_variable else ""
    return ModelAccess(base_url=variables.get(profile.base_url_variable, ""), key=key, model=model)


def _merge_files(profile: Profile, access: ModelAccess, options: SessionOptions) -> dict[str, str]:
    """Return the files of a home directory: those of the profile, with the parts that the mode needs."""
    return options.agent_mode.merge_files(profile.files(access))


def _provider_model(profile: Profile, access: ModelAccess) -> str:
    """Return the model's name as the agent knows it, with the provider that its files name."""
    needs_prefix = bool(access.model and access.base_url) and not access.model.startswith(profile.model_prefix)
    return f"{profile.model_prefix}{access.model}" if needs_prefix else access.model


def _access_variables(profile: Profile, isolation: Isolation) -> dict[str, str]:
    """Return the variables that lead an agent in a sandbox to the gateway."""
    variables: dict[str, str] = {"TMPDIR": "/tmp"} if isolation.has_sandbox else {}  # noqa: S108  the sandbox's own
    if isolation.hides_key:
        variables |= {profile.key_variable: PLACEHOLDER, profile.base_url_variable: GATEWAY_URL}
    if isolation.network == "gateway":  # A proxy of the server, as in HTTP_PROXY, cannot be reached from the sandbox.
        variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    if isolation.network == "gateway" and isolation.hosts:
        variables |= dict.fromkeys(("HTTPS_PROXY", "https_proxy"), GATEWAY_URL)
    return variables


def _mcp_servers(servers: Mapping[str, Any], *, http: bool) -> list[dict[str, Any]]:
    """Return the run's MCP servers in the form of the protocol. Those that could be taken for ours are left out."""
    converted: list[dict[str, Any]] = []
    for name, value in servers.items():
        server = as_object(value)
        if is_reserved_server(name):
            continue
        if isinstance(server.get("command"), str):
            environment = as_object(server.get("env"))
            converted.append(
                {
                    "name": name,
                    "command": server["command"],
                    "args": list(server.get("args") or ()),
                    "env": [{"name": key, "value": str(item)} for key, item in environment.items()],
                }
            )
        elif isinstance(server.get("url"), str) and http:
            headers = as_object(server.get("headers"))
            converted.append(
                {
                    "type": "sse" if server.get("type") == "sse" else "http",
                    "name": name,
                    "url": server["url"],
                    "headers": [{"name": key, "value": str(item)} for key, item in headers.items()],
                }
            )
    return converted
