"""Requirements as data: each fault found in the reference runner, and the tests that would fail if this one had it.

S: faults of security. C: faults of correctness. `tests/test_requirements.py` checks that every test named here exists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault of the reference runner, and the tests that prevent it here."""

    what: str
    tests: tuple[str, ...]


_REPOS, _REPO_SAFETY, _CLONE = (
    "tests/services/workspaces/test_repos.py",
    "tests/services/workspaces/test_repo_safety.py",
    "tests/services/workspaces/test_clone.py",
)
_SETUP, _SETUP_CREDENTIALS = "tests/services/test_setup.py", "tests/services/test_setup_credentials.py"
_PLATFORM_ROUTES, _FILES = "tests/server/routes/test_platform.py", "tests/server/routes/test_files.py"
_WORKFLOWS, _PLATFORM, _TRACING = (
    "tests/services/workspaces/test_workflows.py",
    "tests/e2e/test_platform.py",
    "tests/telemetry/test_tracing.py",
)
_CLAUDE = "tests/bridges/claude"

FAULTS: dict[str, Fault] = {
    "S1": Fault(
        what="An empty name removed every repository; `../x` and absolute paths removed anything.",
        tests=(
            f"{_REPO_SAFETY}::test_removing_takes_one_name_and_nothing_else",
            f"{_PLATFORM_ROUTES}::test_names_that_lead_outside_of_the_workspace_are_refused",
        ),
    ),
    "S2": Fault(
        what="A name or path with `../` cloned outside of the workspace, or copied any directory into it.",
        tests=(
            f"{_REPO_SAFETY}::test_a_clone_never_leaves_the_workspace",
            f"{_WORKFLOWS}::test_a_path_never_leaves_the_workflow",
            f"{_WORKFLOWS}::test_a_path_through_a_link_in_the_repository_is_refused",
            f"{_PLATFORM_ROUTES}::test_names_that_lead_outside_of_the_workspace_are_refused",
        ),
    ),
    "S3": Fault(
        what="A branch `--upload-pack=…` was run as a command; clones came from any host and any file.",
        tests=(
            f"{_REPO_SAFETY}::test_nothing_that_is_sent_becomes_an_option_or_a_command",
            f"{_REPO_SAFETY}::test_only_allowed_sources_are_cloned_from",
            "tests/services/workspaces/test_clone_sources.py::test_private_addresses_are_refused_however_they_are_written",
            f"{_PLATFORM_ROUTES}::test_a_url_that_may_not_be_cloned_is_refused_at_once_and_never_repeated",
        ),
    ),
    "S4": Fault(
        what="A route for files found token files anywhere by a part of their name.",
        tests=(
            "tests/services/workspaces/test_uploads.py::test_a_path_that_could_leave_is_refused",
            "tests/services/workspaces/test_uploads.py::test_links_pipes_devices_and_directories_are_neither_listed_nor_read",
            f"{_FILES}::test_artifacts_go_out_as_bytes_and_never_from_outside_the_workspace",
        ),
    ),
    "S5": Fault(
        what="Any host with `github` in its name got the GitHub token.",
        tests=(
            f"{_REPO_SAFETY}::test_a_token_reaches_only_the_host_it_is_for_and_no_file",
            "tests/services/workspaces/test_git.py::test_a_host_other_than_the_logins_own_gets_nothing_even_if_it_asks",
            "tests/services/workspaces/test_git_logins.py::test_a_token_is_for_its_own_host_and_for_no_other",
        ),
    ),
    "S6": Fault(
        what="One person's running turn saw another's token, and lost its own when the other's turn ended.",
        tests=(
            f"{_SETUP_CREDENTIALS}::test_two_users_at_once_have_only_their_own_credentials",
            f"{_PLATFORM}::test_two_threads_at_once_each_have_their_own_token_and_no_one_can_read_it",
            f"{_CLAUDE}/test_process.py::test_two_users_at_once_see_only_what_was_granted_to_them",
            "tests/telemetry/test_links.py::test_runs_of_two_users_at_the_same_time_do_not_mix",
        ),
    ),
    "S7": Fault(
        what="Secrets stayed in snapshots, reasoning, state and results, across deltas, and when a token was refreshed.",
        tests=(
            f"{_SETUP_CREDENTIALS}::test_each_run_has_its_own_token_and_all_of_them_are_redacted",
            "tests/projections/redaction/test_redactor.py::test_a_secret_split_over_deltas_is_replaced_and_its_beginning_is_never_sent",
            "tests/projections/redaction/test_redactor.py::test_every_string_of_an_event_is_searched_names_and_pointers_included",
            "tests/telemetry/test_safety.py::test_a_secret_added_during_a_run_is_redacted_too",
        ),
    ),
    "S8": Fault(
        what="The agent's shell inherited the server's own tokens; credentials were in files and stayed after a failure.",
        tests=(
            f"{_SETUP_CREDENTIALS}::test_two_users_at_once_have_only_their_own_credentials",
            f"{_SETUP_CREDENTIALS}::test_credentials_are_dropped_with_the_run",
            f"{_SETUP_CREDENTIALS}::test_credentials_are_dropped_with_a_run_that_is_stopped",
            f"{_SETUP_CREDENTIALS}::test_without_credentials_the_agent_does_not_start_and_the_thread_is_free",
            "tests/services/mcp/test_status.py::test_a_child_gets_its_configured_environment_and_nothing_of_the_servers",
            "tests/services/workspaces/test_git.py::test_git_gets_a_few_fixed_variables_and_nothing_of_this_process",
            f"{_PLATFORM}::test_two_threads_at_once_each_have_their_own_token_and_no_one_can_read_it",
        ),
    ),
    "C1": Fault(
        what="A command-line agent that could not start blocked its thread forever.",
        tests=(
            f"{_CLAUDE}/test_process.py::test_a_cli_that_cannot_start_is_an_error_and_frees_the_thread",
            f"{_CLAUDE}/test_process.py::test_a_cli_that_hangs_at_its_start_is_an_error_in_time",
        ),
    ),
    "C2": Fault(
        what="A repository added during a run ended the run with an error after its end.",
        tests=(
            f"{_SETUP}::test_a_change_during_a_run_takes_effect_with_the_next_run",
            f"{_REPOS}::test_a_removed_repository_stays_under_a_running_agent_and_goes_before_the_next_run",
        ),
    ),
    "C3": Fault(
        what="A repository added while the server ran never reached the agent.",
        tests=(
            f"{_REPOS}::test_the_next_run_finds_what_was_added",
            f"{_SETUP}::test_an_added_repository_is_the_next_runs_working_directory_with_a_new_adapter",
            f"{_PLATFORM}::test_a_repository_added_to_a_running_server_is_where_the_next_run_works",
        ),
    ),
    "C4": Fault(
        what="The thread's own branch was missing in every clone.",
        tests=(
            f"{_CLONE}::test_every_clone_is_on_the_threads_own_branch_from_the_remotes_default",
            f"{_PLATFORM}::test_a_repository_added_to_a_running_server_is_where_the_next_run_works",
        ),
    ),
    "C5": Fault(
        what="State or context in a run destroyed the preset of the system prompt.",
        tests=(
            f"{_CLAUDE}/test_text.py::test_instructions_are_added_to_the_preset_and_context_and_state_go_with_every_message",
        ),
    ),
    "C6": Fault(
        what="Calls were left open by a crash, results lost blocks, and the last message was used as the prompt, whatever its role.",
        tests=(
            f"{_CLAUDE}/test_process.py::test_a_process_that_dies_in_the_middle_is_an_error_at_once_and_the_next_run_has_a_new_one",
            f"{_CLAUDE}/test_tools.py::test_results_of_several_calls_reach_the_calls_they_belong_to",
            f"{_SETUP}::test_developer_messages_that_come_back_never_reach_the_model",
        ),
    ),
    "C7": Fault(
        what="Traces had orphans, took errors for successes, mixed threads and guessed at usage.",
        tests=(
            f"{_TRACING}::test_a_tool_that_runs_before_any_text_belongs_to_the_run",
            f"{_TRACING}::test_an_error_the_agent_reports_is_an_error",
            f"{_TRACING}::test_a_stopped_run_closes_its_spans_and_the_next_run_has_a_trace_of_its_own",
            f"{_TRACING}::test_usage_is_that_of_the_terminal_event",
        ),
    ),
    "C8": Fault(
        what="Failures were reported as successes; one error in the MCP configuration disabled every server.",
        tests=(
            f"{_PLATFORM_ROUTES}::test_a_workflow_is_changed_kept_when_the_next_one_fails_and_cleared",
            f"{_WORKFLOWS}::test_a_change_that_fails_is_an_error_and_the_old_workflow_stays",
            f"{_SETUP_CREDENTIALS}::test_mcp_servers_get_the_credentials_and_an_invalid_one_is_left_out",
            "tests/services/mcp/test_config.py::test_an_error_in_the_configuration_affects_only_its_own_server",
        ),
    ),
    "C9": Fault(
        what="A client that left orphaned the agent's process; a hung one never timed out.",
        tests=(
            f"{_CLAUDE}/test_process.py::test_a_cli_that_hangs_in_the_middle_is_an_error_in_time_and_the_next_run_works",
            f"{_CLAUDE}/test_process.py::test_a_run_that_is_cut_leaves_no_process",
            f"{_PLATFORM}::test_a_server_that_is_shut_down_ends_its_clones_and_mcp_servers_too",
        ),
    ),
    "C10": Fault(
        what="Generators were not closed, and yielded events while they were being cancelled.",
        tests=(f"{_CLAUDE}/test_process.py::test_closing_its_events_early_leaves_neither_task_nor_process",),
    ),
}
