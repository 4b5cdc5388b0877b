"""RUN_ERROR events with the codes of the package. The log has the cause; clients get a code and a general message."""

from __future__ import annotations

import logging

from ag_ui.core import RunErrorEvent

__all__ = ["AGUIErrorEvent"]

logger = logging.getLogger(__name__)


class AGUIErrorEvent:
    """Creates the error events of the package."""

    @staticmethod
    def create_encoding_error_event(e: Exception) -> RunErrorEvent:
        """Return the error for an event that could not be encoded."""
        return _logged_error("ENCODING_ERROR", "An event could not be encoded.", e)

    @staticmethod
    def create_agent_error_event(e: Exception) -> RunErrorEvent:
        """Return the error for an agent that failed."""
        return _logged_error("AGENT_ERROR", "The agent failed.", e)

    @staticmethod
    def create_execution_error_event(e: Exception) -> RunErrorEvent:
        """Return the error for a run that failed."""
        return _logged_error("EXECUTION_ERROR", "The run failed.", e)

    @staticmethod
    def create_tool_processing_error_event(e: Exception) -> RunErrorEvent:
        """Return the error for tool results that could not be processed."""
        return _logged_error("TOOL_RESULT_PROCESSING_ERROR", "The tool results could not be processed.", e)

    @staticmethod
    def create_no_tool_results_error(thread_id: str) -> RunErrorEvent:
        """Return the error for tool results that no call waits for."""
        return _thread_error("NO_TOOL_RESULTS", "No tool results found in submission", thread_id)

    @staticmethod
    def create_no_input_message_error(thread_id: str) -> RunErrorEvent:
        """Return the error for a request without a message."""
        return _thread_error("NO_INPUT_MESSAGE", "Input message is missing", thread_id)

    @staticmethod
    def create_is_locked_error(thread_id: str) -> RunErrorEvent:
        """Return the error for a thread that another request has locked."""
        return _thread_error("THREAD_IS_LOCKED", "Thread is currently locked", thread_id)


def _logged_error(code: str, message: str, error: Exception) -> RunErrorEvent:
    logger.error("%s", message, exc_info=error)
    return RunErrorEvent(message=message, code=code)


def _thread_error(code: str, message: str, thread_id: str) -> RunErrorEvent:
    logger.warning("Thread %s: %s (%s)", thread_id, message, code)
    return RunErrorEvent(message=message, code=code)
