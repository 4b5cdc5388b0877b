from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.config import (
    OPTIONS,
    SECRET_PATTERNS,
    LangfuseSettings,
    OtlpSettings,
    Settings,
    Timeouts,
    TracingSettings,
    base_environment,
    is_loopback,
    read_settings,
)
from ambient_runner.config.secret_patterns import compile_pattern
from ambient_runner.errors import ConfigError

DOCS = Path(__file__).parent.parent / "docs" / "reference" / "config.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def file(text: str, name: str = "ambient.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(config: Path | None = None, environ: dict[str, str] | None = None, **overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(config, environ or {}, **overrides)
    return caught.value.message


def test_nothing_written_anywhere_gives_the_defaults() -> None:
    assert read_settings(environ={}) == Settings()


def test_the_command_line_wins_over_the_environment_and_that_over_the_file() -> None:
    file('port = 1\nhost = "localhost"\nlease = 3\n')
    settings = read_settings(environ={"AMBIENT_PORT": "2", "AMBIENT_HOST": "::1"}, port=3, host=None)
    assert settings == Settings(port=3, host="::1", lease=3.0)


def test_every_option_can_be_written_in_the_file() -> None:
    path = file(
        """
        host = "::1"
        port = 0
        store = "memory://"
        lease = 2.5
        on_busy = "queue"
        on_pending_interrupt = "cancel"
        queue_depth = 3
        queue_wait = "500ms"
        on_disconnect = "stop"
        history = "client"
        audience = "open"
        adapters_kept = 4
        adapter_idle = "1h"
        max_body = "1MiB"
        retain = 100
        slow_reader = "2m"
        heartbeat = "5s"
        operators = ["olga"]
        allowed_hosts = ["a.example", "b.example"]
        allowed_origins = ["https://a.example"]
        pass_headers = ["X-Tenant"]
        forwarded_props = ["theme"]
        adopt_history = false
        client = "0.0.42"
        log_level = "debug"
        log_format = "json"
        default_thread = "main"
        workspace = "/srv/work"
        model = "large"
        max_tokens = 1000
        temperature = 0.5
        system_prompt = "Be brief."

        [git]
        schemes = ["HTTPS", "file"]
        hosts = ["git.example.com"]
        private = true

        [mcp]
        config = "servers.json"
        project = true

        [credentials]
        url = "https://backend.example.com/credentials"
        token = "bearer-of-the-server"

        [tracing]
        to = ["langfuse"]
        content = false
        langfuse_url = "https://langfuse.example/"
        otlp_endpoint = "http://collector:4318"

        [timeouts]
        idle = 1
        total = 2
        grace = 3

        [agents]
        mine = "package.module:bridge"
        copy = "demo"

        [secrets]
        names = ["PIN"]
        patterns = ["acme-[0-9]{8}"]
        strict = true

        [exposure]
        search = "all"
        "*" = "summary"
        """,
        "other.toml",
    )
    keys = {"LANGFUSE_PUBLIC_KEY": "pk-1", "LANGFUSE_SECRET_KEY": "sk-1"}
    langfuse = LangfuseSettings(url="https://langfuse.example", public_key="pk-1", secret_key="sk-1")
    assert read_settings(path, {"PIN": "12345678"} | keys) == Settings(
        host="::1",
        port=0,
        store="memory://",
        lease=2.5,
        on_busy="queue",
        on_pending_interrupt="cancel",
        queue_depth=3,
        queue_wait=0.5,
        on_disconnect="stop",
        history="client",
        audience="open",
        exposure={"search": "all", "*": "summary"},
        timeouts=Timeouts(idle=1.0, total=2.0, grace=3.0),
        adapters_kept=4,
        adapter_idle=3600.0,
        max_body=1 << 20,
        retain=100,
        slow_reader=120.0,
        heartbeat=5.0,
        operators=("olga",),
        allowed_hosts=("a.example", "b.example"),
        allowed_origins=("https://a.example",),
        pass_headers=("x-tenant",),
        forwarded_props=("theme",),
        adopt_history=False,
        client="0.0.42",
        agents=("mine=package.module:bridge", "copy=demo"),
        log_level="debug",
        log_format="json",
        default_thread="main",
        workspace="/srv/work",
        git_schemes=("https", "file"),
        git_hosts=("git.example.com",),
        git_private=True,
        model="large",
        max_tokens=1000,
        temperature=0.5,
        system_prompt="Be brief.",
        mcp_config="servers.json",
        mcp_project=True,
        credentials_url="https://backend.example.com/credentials",
        credentials_token="bearer-of-the-server",
        tracing=TracingSettings(langfuse=langfuse, content=False),
        secrets_strict=True,
        short_secrets=("LANGFUSE_SECRET_KEY",),
        secret_patterns=(*SECRET_PATTERNS, compile_pattern("acme-[0-9]{8}")),
        secrets=(
            "bearer-of-the-server",
            langfuse.authorization,
            langfuse.authorization.removeprefix("Basic "),
            "12345678",
        ),
    )


def test_every_option_can_be_written_in_the_environment() -> None:
    values = {
        "host": "::1",
        "port": "9",
        "store": "memory://",
        "lease": "1",
        "store_patience": "2m",
        "on_busy": "JOIN",
        "on_pending_interrupt": "REJECT",
        "queue_depth": "1",
        "queue_wait": "1",
        "on_disconnect": "stop",
        "history": "server",
        "audience": "SAFE",
        "exposure": "search=all, lookup = result",
        "idle_timeout": "1",
        "total_timeout": "1",
        "stop_grace": "1",
        "adapters_kept": "1",
        "adapter_idle": "1",
        "max_body": "1",
        "retain": "5",
        "view_cache": "64MiB",
        "slow_reader": "1",
        "heartbeat": "1",
        "operators": "olga, acme/otto",
        "allowed_hosts": "a, b",
        "allowed_origins": "https://c",
        "pass_headers": "X-Tenant",
        "forwarded_props": "ALL",
        "adopt_history": "no",
        "client": "0.0.42",
        "agents": "demo,mine=p:a",
        "middleware": "audit,my_project.audit:log_runs",
        "log_level": "error",
        "log_format": "json",
        "default_thread": "main",
        "workspace": "work",
        "cwd": "/",
        "git_schemes": "https",
        "git_hosts": "a.example, b.example",
        "git_private": "yes",
        "model": "large",
        "max_tokens": "10",
        "temperature": "1",
        "system_prompt": "Be brief.",
        "mcp_config": "servers.json",
        "mcp_project": "off",
        "credentials_url": "http://127.0.0.1:9/credentials",
        "credentials_token": "bearer",
        "secret_names": "PIN",
        "secret_patterns": "acme-[0-9]{8} x[0-9]{9}",
        "secrets_strict": "yes",
        "tracing": "OTLP",
        "trace_content": "yes",
        "otlp_endpoint": "http://collector:4318/",
        "langfuse_url": "https://langfuse.example",
    }
    assert set(values) == {option.name for option in OPTIONS}
    environ = {f"AMBIENT_{name.upper()}": value for name, value in values.items()}
    assert read_settings(environ=environ | {"PIN": "abcdefgh"}) == Settings(
        host="::1",
        port=9,
        store="memory://",
        lease=1.0,
        store_patience=120.0,
        on_busy="join",
        on_pending_interrupt="reject",
        queue_depth=1,
        queue_wait=1.0,
        on_disconnect="stop",
        history="server",
        audience="safe",
        exposure={"search": "all", "lookup": "result"},
        timeouts=Timeouts(idle=1.0, total=1.0, grace=1.0),
        adapters_kept=1,
        adapter_idle=1.0,
        max_body=1,
        retain=5,
        view_cache=64 << 20,
        slow_reader=1.0,
        heartbeat=1.0,
        operators=("olga", "acme/otto"),
        allowed_hosts=("a", "b"),
        allowed_origins=("https://c",),
        pass_headers=("x-tenant",),
        forwarded_props="all",
        adopt_history=False,
        client="0.0.42",
        agents=("demo", "mine=p:a"),
        middleware=("audit", "my_project.audit:log_runs"),
        log_level="error",
        log_format="json",
        default_thread="main",
        workspace="work",
        cwd="/",
        git_schemes=("https",),
        git_hosts=("a.example", "b.example"),
        git_private=True,
        model="large",
        max_tokens=10,
        temperature=1.0,
        system_prompt="Be brief.",
        mcp_config="servers.json",
        mcp_project=False,
        credentials_url="http://127.0.0.1:9/credentials",
        credentials_token="bearer",
        secrets_strict=True,
        short_secrets=("AMBIENT_CREDENTIALS_TOKEN",),
        secret_patterns=(*SECRET_PATTERNS, *map(compile_pattern, ("acme-[0-9]{8}", "x[0-9]{9}"))),
        secrets=("abcdefgh",),
        tracing=TracingSettings(otlp=OtlpSettings(endpoint="http://collector:4318/v1/traces"), content=True),
    )


def test_every_option_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert [option.env_name for option in OPTIONS if f"`{option.env_name}`" not in page] == []
    assert [option.path for option in OPTIONS if f"`{'.'.join(option.path)}`" not in page] == []


def test_a_file_named_in_the_environment_is_read() -> None:
    file("port = 7", "named.toml")
    assert read_settings(environ={"AMBIENT_CONFIG": "named.toml"}) == Settings(port=7)


def test_a_named_file_that_is_not_there_is_refused() -> None:
    assert "absent.toml" in refusal(Path("absent.toml"))


@pytest.mark.parametrize("kind", ["directory", "dangling link"])
def test_an_ambient_toml_that_cannot_be_read_is_refused(kind: str) -> None:
    """It was ignored, and the server started with the defaults."""
    path = Path("ambient.toml")
    path.mkdir() if kind == "directory" else path.symlink_to("absent.toml")
    message = refusal()
    assert ("ambient.toml" in message, "AMBIENT_CONFIG" in message) == (True, True)


def test_a_file_that_is_not_toml_is_refused() -> None:
    file("port = = 1")
    assert "ambient.toml" in refusal()


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read_settings(environ={"AMBIENT_PORT": ""}) == Settings()


def test_an_unknown_variable_is_refused_with_the_nearest_known_one() -> None:
    assert "AMBIENT_ON_BUSY?" in refusal(environ={"AMBIENT_BUSY": "queue"})


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("prot = 1", "port?"), ("[timeouts]\nidel = 1", "timeouts.idle?"), ("[timeout]\nidle = 1", "timeouts.idle?")],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(text: str, nearest: str) -> None:
    file(text)
    assert nearest in refusal()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "eighty"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "²"),
        ("LEASE", "0"),
        ("LEASE", "-1"),
        ("LEASE", "nan"),
        ("LEASE", "inf"),
        ("LEASE", "5 days"),
        ("MAX_BODY", "10MB"),
        ("MAX_BODY", "0.5"),
        ("MAX_BODY", "1025MiB"),
        ("MAX_BODY", "99999GiB"),
        ("MAX_BODY", "9" * 400),
        ("VIEW_CACHE", "99999GiB"),
        ("ON_BUSY", "wait"),
        ("HISTORY", "both"),
        ("STORE", "ambient.db"),
        ("STORE", "postgresql://[bad"),
        ("QUEUE_DEPTH", "0"),
    ],
)
def test_a_bad_value_is_refused_with_its_source(name: str, value: str) -> None:
    assert refusal(environ={f"AMBIENT_{name}": value}).startswith(f"AMBIENT_{name} must be ")


@pytest.mark.parametrize(
    "text", ["port = true", "port = 1.5", "host = 1", "allowed_hosts = [1]", "timeouts = 5", "lease = true"]
)
def test_a_value_of_the_wrong_type_in_the_file_is_refused(text: str) -> None:
    file(text)
    assert "ambient.toml" in refusal()


def test_secrets_are_found_by_the_names_of_their_variables_longest_first() -> None:
    environ = {
        "OPENAI_API_KEY": "sk-9fK2qLw7",
        "db_password": "a-longer-secret-value",
        "GITHUB_TOKEN": "sk-9fK2qLw7",
        "SHORT_KEY": "1234567",
        "HOME": "/home/user",
    }
    assert read_settings(environ=environ).secrets == ("a-longer-secret-value", "sk-9fK2qLw7")


def test_a_named_secret_too_short_to_be_redacted_is_refused() -> None:
    assert "PIN" in refusal(environ={"PIN": "1234", "AMBIENT_SECRET_NAMES": "PIN"})


def test_a_named_secret_that_is_not_set_is_ignored() -> None:
    assert read_settings(environ={"AMBIENT_SECRET_NAMES": "PIN"}) == Settings()


def test_the_password_of_the_store_is_a_secret_and_is_never_shown() -> None:
    settings = read_settings(environ={"AMBIENT_STORE": "postgresql://me:p%40ssw0rd!@db/x"})
    assert settings.secrets == ("p%40ssw0rd!", "p@ssw0rd!")
    assert settings.store_label == "postgresql://me:***@db/x"
    assert "ssw0rd" not in repr(settings)


def test_the_representation_shows_no_secret() -> None:
    assert "sk-9fK2qLw7" not in repr(read_settings(environ={"API_KEY": "sk-9fK2qLw7"}))


def test_history_is_the_servers_where_threads_are_stored() -> None:
    modes = [Settings(store=store).history_mode for store in ("sqlite:///x.db", "memory://")]
    assert modes == ["server", "client"]
    assert Settings(store="memory://", history="server").history_mode == "server"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.com", False),
    ],
)
def test_only_loopback_addresses_are_local(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    "url",
    [
        "http://backend.example.com/credentials",
        "ftp://127.0.0.1/x",
        "https://",
        "https://user:pass@backend.example.com/",
        "https://backend.example.com/#part",
        "backend.example.com",
    ],
)
def test_credentials_travel_encrypted_or_not_at_all(url: str) -> None:
    assert refusal(environ={"AMBIENT_CREDENTIALS_URL": url}).startswith("AMBIENT_CREDENTIALS_URL must be an https URL")


@pytest.mark.parametrize("value", ["2.1", "-1", "hot", "1s"])
def test_a_temperature_is_a_number_from_0_to_2(value: str) -> None:
    assert refusal(environ={"AMBIENT_TEMPERATURE": value}) == "AMBIENT_TEMPERATURE must be a number from 0 to 2."


def test_a_child_process_gets_only_the_base_variables_of_the_server() -> None:
    environ = {"PATH": "/bin", "HOME": "/home/me", "AMBIENT_CREDENTIALS_TOKEN": "x", "API_KEY": "y", "LD_PRELOAD": "z"}
    assert base_environment(environ) == {"PATH": "/bin", "HOME": "/home/me"}


@pytest.mark.parametrize("entry", ["x = ['a']", "x = 5", "x = true", "x = ''", "[[agents.x]]\nbridge = 'demo'"])
def test_an_agent_that_is_neither_text_nor_a_table_is_refused_by_its_key(entry: str) -> None:
    """It was taken for the name of a bridge or a module, such as `['a']`."""
    text = entry if entry.startswith("[[") else f"[agents]\n{entry}\n"
    message = refusal(file(text))
    assert ("agents.x in ambient.toml" in message, "[agents.x]" in message) == (True, True)


def test_an_agent_is_chosen_by_its_name_without_spaces() -> None:
    config = file("[agents]\n' a ' = 'demo'\n")
    assert read_settings(config, {}, agents=["a"]).agents == read_settings(config, {}).agents == ("a=demo",)


def test_a_variable_without_a_name_does_not_hide_the_agents_of_the_file() -> None:
    assert read_settings(file("[agents]\na = 'demo'\n"), {"AMBIENT_AGENTS": ","}).agents == ("a=demo",)


def test_the_scheme_of_a_store_is_case_insensitive() -> None:
    settings = read_settings(None, {}, store="MEMORY://")
    assert (settings.store, settings.is_durable) == ("memory://", False)
    assert read_settings(None, {}, store="SQLITE:///X.db").store == "sqlite:///X.db"


@pytest.mark.parametrize("value", ['{ search = "everything" }', "{ search = 1 }", '"search"', "[]", '{ "" = "all" }'])
def test_an_exposure_is_one_of_four(value: str) -> None:
    assert "summary, arguments, result, all" in refusal(file(f"exposure = {value}"))


def test_an_agent_has_an_audience_and_an_exposure_of_its_own() -> None:
    settings = read_settings(
        file(
            """
            audience = "open"
            [exposure]
            search = "all"
            [agents.mine]
            bridge = "demo"
            audience = "safe"
            exposure = { search = "result", draw = "all" }
            """
        ),
        {},
    )
    assert settings.audience_for("mine", serves_others=False) == "safe"
    assert settings.audience_for("other", serves_others=True) == "open"
    assert settings.exposure_of("mine", {"draw": "summary", "list": "all"}) == {
        "search": "result",
        "draw": "all",
        "list": "all",
    }
    assert "agents.mine.audience" in refusal(file('[agents.mine]\nbridge = "demo"\naudience = "closed"'))


def test_an_agent_has_suggestions_of_its_own() -> None:
    def suggestions(value: str) -> object:
        settings = read_settings(file(f'[agents.mine]\nbridge = "demo"\nsuggestions = {value}'), {})
        assert settings.suggestions_for("other") is None
        return settings.suggestions_for("mine")

    assert suggestions('["Make tea", " What is new: today? "]') == ("Make tea", "What is new: today?")
    assert suggestions("[]") == ()
    assert suggestions('"shop.page:suggest"') == "shop.page:suggest"


@pytest.mark.parametrize("value", ['"Make tea"', '"Make tea: now"', "[1]", '["a", ""]', "true", '{ a = "b" }'])
def test_suggestions_are_texts_or_one_function(value: str) -> None:
    message = refusal(file(f'[agents.mine]\nbridge = "demo"\nsuggestions = {value}'))
    assert message.startswith("agents.mine.suggestions in ambient.toml must be a list of texts")


@pytest.mark.parametrize(
    ("settings", "audience", "history"),
    [
        (Settings(), "safe", "server"),
        (Settings(store="memory://"), "open", "client"),
        (Settings(store="memory://", audience="safe"), "safe", "server"),
        (Settings(history="client"), "open", "client"),
        (Settings(audience="open"), "open", "server"),
    ],
)
def test_others_see_the_safe_part_unless_they_keep_the_conversation(
    settings: Settings, audience: str, history: str
) -> None:
    assert settings.audience_for("any", serves_others=True) == audience
    assert settings.history_mode == history
