"""A graph that asks the user, for a page that answers with `forwardedProps.command.resume`."""

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def ask(state: MessagesState) -> dict[str, object]:
    steps = interrupt({"steps": ["boil water", "add tea"]})
    return {"messages": [AIMessage(content=f"Doing: {', '.join(steps)}.")]}


graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=MemorySaver())
agent = LangGraphAgent(name="human_in_the_loop", description="Plans tasks.", graph=graph)
app = FastAPI()
add_langgraph_fastapi_endpoint(app, agent, "/agent/human_in_the_loop")
