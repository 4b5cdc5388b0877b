"""The README's example: a graph behind one endpoint."""

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph

model = FakeListChatModel(responses=["Hello, how can I help?"])


async def chat(state: MessagesState) -> dict[str, object]:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat").compile(checkpointer=MemorySaver())
app = FastAPI()
add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="agentic_chat", graph=graph), "/agent/agentic_chat")
