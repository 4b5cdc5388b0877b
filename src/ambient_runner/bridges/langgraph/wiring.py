"""What is put into a graph's run so that its stream says everything: events that nodes dispatch by LangChain's own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackHandler
from langgraph.config import get_stream_writer

from ambient_runner.bridges.langgraph.translate import Dispatched

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["DispatchedEvents"]


class DispatchedEvents(AsyncCallbackHandler):
    """Puts what `adispatch_custom_event` sends into the stream, in its place between the others."""

    run_inline = True

    # It is not asked for every token, call and node: there are many.
    @property
    def ignore_llm(self) -> bool:
        return True

    @property
    def ignore_chat_model(self) -> bool:
        return True

    @property
    def ignore_chain(self) -> bool:
        return True

    async def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        get_stream_writer()(Dispatched(name, data))
