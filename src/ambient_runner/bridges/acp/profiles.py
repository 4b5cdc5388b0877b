"""Profiles of known agents. Data only; each quirk has a test.

A profile names the command, the line that installs it, the variables and files it is configured with, and its deviations from
the protocol. `modes.py` has its permission modes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError

__all__ = ["GENERIC", "PROFILES", "ModelAccess", "Profile", "Quirks", "find_profile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAccess:
    """The model, its URL and its key, for the files of a home directory."""

    base_url: str = ""
    """The provider's URL for the agent; empty for the agent's own default."""
    key: str = field(default="", repr=False)
    """The key that the agent holds: a placeholder if a gateway puts the real one in."""
    model: str = ""
    has_client_tools: bool = False
    """True if the client's tools are offered, whose calls wait for a person."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quirks:
    """Deviations of an agent from the protocol."""

    replays_after_load: bool = False
    """The replay of a loaded session may come after the response to `session/load`."""
    has_mode_chatter: bool = False
    """A change of mode is announced as text of the assistant, outside of a turn."""
    reports_errors_as_text: bool = False
    """A failed request to the model ends the turn normally, with the error as text; `_meta` has the failure."""
    ends_slowly: bool = False
    """It does not exit when its input ends, so it is killed."""


Files = Callable[[ModelAccess], Mapping[str, str]]
"""Returns the files that a home directory of its own needs, by their path in it."""


def _no_files(access: ModelAccess) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """An agent that is known by its name."""

    name: str
    title: str
    command: tuple[str, ...] = ()
    install: str = ""
    """The line that installs it."""
    model_argument: str = ""
    """Option of the command that sets the model; empty if the model is a config option of the session."""
    model_prefix: str = ""
    """Prefix of the names of models whose provider is in `files`."""
    default_model: str = ""
    """The model if none is set: some agents choose one by asking another model first."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of every process."""
    passed_variables: tuple[str, ...] = ()
    """Variables of the server that it needs to reach its model, where they are set."""
    key_variable: str = ""
    """The variable with the key of its model."""
    base_url_variable: str = ""
    """The variable with the URL of its model's provider."""
    default_base_url: str = ""
    """That URL if the variable is not set."""
    key_headers: tuple[str, ...] = ()
    """Headers in which it sends the key."""
    home_directories: tuple[str, ...] = ()
    """Directories of the user's home that have its login, settings and sessions."""
    home_variable: str = ""
    """A variable with the directory of its settings, and that directory in a home of its own: `NAME=.directory`."""
    files: Files = _no_files
    login_hosts: tuple[str, ...] = ()
    """Hosts it must reach if it is signed in instead of having a key."""
    has_sandbox: bool = False
    """True if the agent limits the commands it runs itself."""
    quirks: Quirks = Quirks()


_PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")

GENERIC = Profile(name="", title="The agent", passed_variables=_PROXY_VARIABLES, quirks=Quirks(replays_after_load=True))


_DAY_SECONDS = 24 * 3600


def _codex_files(access: ModelAccess) -> Mapping[str, str]:
    lines = ["check_for_update_on_startup = false"]
    if access.model:
        lines.append(f"model = {json.dumps(access.model)}")
    if access.base_url:
        lines.append('model_provider = "ambient"')
    lines += ["", "[analytics]", "enabled = false", "", "[features]", "plugins = false", "shell_snapshot = false"]
    if access.base_url:
        lines += [
            "",
            "[model_providers.ambient]",
            'name = "ambient"',
            f"base_url = {json.dumps(access.base_url)}",
            'env_key = "OPENAI_API_KEY"',
            'wire_api = "responses"',
            "supports_websockets = false",
        ]
    # Otherwise Codex gives a call up after five minutes. The session names the real command.
    if access.has_client_tools:
        lines += ["", "[mcp_servers.ambient]", 'command = "true"', f"tool_timeout_sec = {_DAY_SECONDS}"]
    return {".codex/config.toml": "\n".join([*lines, ""])}


def _gemini_files(access: ModelAccess) -> Mapping[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}} if access.key else {},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "sessionRetention": {"enabled": False}},
    }
    return {".gemini/settings.json": json.dumps(settings, indent=2)}


def _opencode_files(access: ModelAccess) -> Mapping[str, str]:
    config: dict[str, object] = {"autoupdate": False, "share": "disabled"}
    if access.base_url:
        model = access.model or "default"
        options = {"baseURL": access.base_url, "apiKey": "{env:OPENAI_API_KEY}"}
        limits = {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {model: limits}}
        config |= {
            "provider": {"ambient": provider},
            "model": f"ambient/{model}",
            "small_model": f"ambient/{model}",
        }
    return {".config/opencode/opencode.json": json.dumps(config, indent=2)}


_CODEX = Profile(
    name="codex",
    title="Codex",
    command=("codex-acp",),
    install="npm install -g @agentclientprotocol/codex-acp@2.6.0",
    # Without the second variable, codex-acp leaves out an MCP server of the session that the file names too.
    variables={"NO_BROWSER": "1", "DISABLE_MCP_CONFIG_FILTERING": "true"},
    passed_variables=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_HOME", *_PROXY_VARIABLES),
    key_variable="OPENAI_API_KEY",
    base_url_variable="OPENAI_BASE_URL",
    default_base_url="https://api.openai.com/v1",
    key_headers=("authorization",),
    home_directories=(".codex",),
    home_variable="CODEX_HOME=.codex",
    files=_codex_files,
    login_hosts=("chatgpt.com", "*.chatgpt.com", "auth.openai.com", "api.openai.com"),
    has_sandbox=True,
    quirks=Quirks(reports_errors_as_text=True),
)

_GEMINI = Profile(
    name="gemini",
    title="Gemini",
    command=("gemini", "--acp"),
    install="npm install -g @google/gemini-cli@0.61.0",
    model_argument="-m",
    default_model="gemini-2.5-pro",
    variables={"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
    passed_variables=("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", *_PROXY_VARIABLES),
    key_variable="GEMINI_API_KEY",
    base_url_variable="GOOGLE_GEMINI_BASE_URL",
    default_base_url="https://generativelanguage.googleapis.com",
    key_headers=("x-goog-api-key",),
    home_directories=(".gemini",),
    files=_gemini_files,
    login_hosts=("*.googleapis.com", "accounts.google.com"),
    quirks=Quirks(replays_after_load=True, has_mode_chatter=True, ends_slowly=True),
)

_OPENCODE = Profile(
    name="opencode",
    title="OpenCode",
    command=("opencode", "acp"),
    install="npm install -g opencode-ai@1.18.33",
    model_prefix="ambient/",
    variables={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        # A repository's own settings could allow everything.
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    },
    passed_variables=("OPENAI_API_KEY", "OPENAI_BASE_URL", *_PROXY_VARIABLES),
    key_variable="OPENAI_API_KEY",
    base_url_variable="OPENAI_BASE_URL",
    default_base_url="https://api.openai.com/v1",
    key_headers=("authorization",),
    home_directories=(".config/opencode", ".local/share/opencode", ".local/state/opencode", ".cache/opencode"),
    files=_opencode_files,
    login_hosts=("opencode.ai", "*.opencode.ai", "api.openai.com", "api.anthropic.com"),
)

_CLAUDE = Profile(
    name="claude-acp",
    title="Claude Code",
    command=("claude-agent-acp",),
    install="npm install -g @agentclientprotocol/claude-agent-acp@0.99.1",
    variables={
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_CRON": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_AGENT_ACP_PROTOCOL": "v1",
    },
    passed_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", *_PROXY_VARIABLES),
    key_variable="ANTHROPIC_API_KEY",
    base_url_variable="ANTHROPIC_BASE_URL",
    default_base_url="https://api.anthropic.com",
    key_headers=("x-api-key", "authorization"),
    home_directories=(".claude",),
    home_variable="CLAUDE_CONFIG_DIR=.claude",
    login_hosts=("api.anthropic.com", "console.anthropic.com", "claude.ai"),
)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (_CODEX, _GEMINI, _OPENCODE, _CLAUDE)}


def find_profile(name: str) -> Profile:
    """Return the profile of this name. Raises: ConfigError, naming the nearest one."""
    if name not in PROFILES:
        hint = did_you_mean(name, list(PROFILES), 0.6) or f" The profiles are {', '.join(sorted(PROFILES))}."
        raise ConfigError(f"There is no profile {name!r}.{hint} For another agent, set its `command`.")
    return PROFILES[name]
