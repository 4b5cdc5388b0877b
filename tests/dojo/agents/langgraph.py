"""The dojo's agents as LangGraph graphs."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import uuid4

from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.langgraph import (
    LangGraphBridge,
    LangGraphConfig,
    back_to_model,
    backend_tools,
    client_tools,
    request_context,
    route_tools,
)
from tests.bridges.langgraph.scripted import ScriptedModel, Turn, blocks, call, text
from tests.dojo.differences import features_of
from tests.dojo.pages import EXPERIENCES, FLIGHTS, HOTELS, STEPS, WEATHER, WRITTEN, tasks
from tests.dojo.script import RESULT, Call, Reply, Script, ScriptRequest, argument_pieces, find_reply, text_pieces

__all__ = ["create_agents"]

SCRIPTS = {feature.name: feature.script for feature in features_of("langgraph")}


def model_of(script: Script) -> ScriptedModel:
    return ScriptedModel(script=lambda messages: _steps(find_reply(script, _to_request(messages))))


def _to_request(messages: list[BaseMessage]) -> ScriptRequest:
    inputs = [RESULT if isinstance(message, ToolMessage) else str(message.content) for message in messages]
    everything = json.dumps([message.content for message in messages], ensure_ascii=False)
    return ScriptRequest(everything=everything, inputs=inputs)


def _steps(reply: Reply) -> Turn:
    made = reply.call
    return [
        *(blocks({"type": "reasoning", "reasoning": reply.thought}) if reply.thought else ()),
        *text(*text_pieces(reply.text)),
        *(call(f"call-{uuid4().hex}", made.name, *argument_pieces(made)) if made else ()),
    ]


class State(MessagesState):
    """Everything that a page of the dojo shares."""

    model: str
    recipe: dict[str, Any]
    document: str
    steps: list[dict[str, str]]


@tool
def get_weather(location: str) -> dict[str, Any]:
    """Return the weather at a location."""
    return WEATHER


def chat(script: Script, *tools: Any) -> Any:
    """An agent with tools of its own and of the page. Its model knows the page's context and the state."""
    model = model_of(script)

    async def agent(state: State) -> dict[str, Any]:
        known = {key: value for key, value in state.items() if key != "messages"}
        prompt = SystemMessage(f"{json.dumps(known, ensure_ascii=False)}\n{request_context()}")
        bound = model.bind_tools([*tools, *client_tools()])
        return {"messages": [await bound.ainvoke([prompt, *state["messages"]])]}

    graph = StateGraph(State)
    graph.add_node("agent", agent)
    graph.add_node("tools", backend_tools(ToolNode(list(tools))))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route_tools("tools"), ["tools", END])
    graph.add_conditional_edges("tools", back_to_model("agent"), ["agent", END])
    return graph.compile(checkpointer=InMemorySaver())


def writer(script: Script, *, key: str, tool: str, after: Any) -> Any:
    """An agent that writes a key of the state by a call. Pages see it while the model writes; `after` is the node that follows."""
    mapping = {"state_key": key, "tool": tool, "tool_argument": key}
    model = model_of(script)

    async def agent(state: State) -> dict[str, Any]:
        prompt = SystemMessage(json.dumps(state.get(key), ensure_ascii=False))
        config = RunnableConfig(metadata={"predict_state": [mapping]})
        return {"messages": [await model.ainvoke([prompt, *state["messages"]], config)]}

    def save(state: State) -> dict[str, Any]:
        (made,) = _calls(state)
        return {key: made["args"][key], "messages": [ToolMessage("Written.", tool_call_id=made["id"])]}

    graph = StateGraph(State)
    graph.add_node("agent", agent)
    graph.add_node("save", save)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", lambda state: "save" if _calls(state) else END, ["save", END])
    if after is not None:
        graph.add_node("after", after)
        graph.add_edge("save", "after")
    else:
        graph.add_edge("save", "agent")
    return graph.compile(checkpointer=InMemorySaver())


def _calls(state: State) -> list[Any]:
    return getattr(state["messages"][-1], "tool_calls", [])


def agentic_generative_ui() -> Any:
    """A plan that is shown while it is written and while it is carried out, in one node."""
    plan = Call(name="plan_steps", arguments={"steps": tasks("pending", "pending")})

    async def work(state: State, config: RunnableConfig) -> dict[str, Any]:
        steps = state["steps"]
        for index, step in enumerate(steps):
            steps = [*steps[:index], {**step, "status": "completed"}, *steps[index + 1 :]]
            await adispatch_custom_event("manually_emit_state", {**state, "steps": steps}, config=config)
        return {"steps": steps, "messages": [AIMessage("Done.")]}

    return writer({"Plant a tree": [Reply(call=plan)]}, key="steps", tool="plan_steps", after=work)


def predictive_state_updates() -> Any:
    """A document that is shown while it is written; then the page is asked to confirm it by a call that no model made."""
    write = Call(name="write_document_local", arguments=WRITTEN.arguments)

    def confirm(state: State) -> dict[str, Any]:
        asked = {"id": f"call-{uuid4().hex}", "name": "confirm_changes", "args": {}}
        return {"messages": [AIMessage("", tool_calls=[asked])]}

    script = {"Write about a pirate": [Reply(call=write), Reply(), Reply(text="Written.", saw="accepted")]}
    return writer(script, key="document", tool="write_document_local", after=confirm)


def human_in_the_loop() -> Any:
    """A plan whose steps the user chooses at an interrupt."""
    plan = Call(name="plan_execution_steps", arguments={"steps": STEPS})
    script = {
        "Plan a garden": [Reply(call=plan)],
        "The user selected": [Reply(text="I dug a hole.", saw="following steps: Dig a hole")],
    }
    model = model_of(script)

    async def make_plan(state: State) -> dict[str, Any]:
        reply = await model.ainvoke(state["messages"])
        (made,) = reply.tool_calls
        result = ToolMessage("Task steps generated.", tool_call_id=made["id"])
        return {"messages": [reply, result], "steps": made["args"]["steps"]}

    async def perform(state: State) -> dict[str, Any]:
        chosen = interrupt({"steps": state["steps"]})
        return {"messages": [await model.ainvoke([HumanMessage(chosen)])]}

    graph = StateGraph(State)
    graph.add_sequence([("plan", make_plan), ("perform", perform)])
    graph.add_edge(START, "plan")
    return graph.compile(checkpointer=InMemorySaver())


class Trip(MessagesState):
    """A trip that three agents plan."""

    flights: list[dict[str, str]]
    hotels: list[dict[str, str]]
    experiences: list[dict[str, str]]
    itinerary: Annotated[dict[str, Any], lambda old, new: {**(old or {}), **(new or {})}]


def subgraphs() -> Any:
    """A supervisor and three subgraphs, two of which ask the user to choose."""

    def supervisor(state: Trip) -> Command[Any]:
        chosen = state.get("itinerary") or {}
        missing = [name for name in ("flight", "hotel") if name not in chosen]
        return Command(goto=f"{missing[0]}s_agent" if missing else "experiences_agent")

    graph = StateGraph(Trip)
    graph.add_node("supervisor", supervisor, destinations=("flights_agent", "hotels_agent", "experiences_agent"))
    graph.add_node("flights_agent", _asking("flight", FLIGHTS))
    graph.add_node("hotels_agent", _asking("hotel", HOTELS))
    graph.add_node("experiences_agent", _experiences())
    graph.add_edge(START, "supervisor")
    graph.add_edge("flights_agent", "supervisor")
    graph.add_edge("hotels_agent", "supervisor")
    return graph.compile(checkpointer=InMemorySaver())


def _asking(kind: str, options: list[dict[str, str]]) -> Any:
    def choose(state: Trip) -> dict[str, Any]:
        question = {"message": f"Which {kind}?", "options": options, "recommendation": options[0], "agent": f"{kind}s"}
        chosen = interrupt(question)
        return {
            f"{kind}s": options,
            "itinerary": {kind: json.loads(chosen) if isinstance(chosen, str) else chosen},
            "messages": [AIMessage(f"I book that {kind}.")],
        }

    graph = StateGraph(Trip)
    graph.add_node("choose", choose)
    graph.add_edge(START, "choose")
    return graph.compile()


def _experiences() -> Any:
    model = model_of(SCRIPTS["subgraphs"])

    async def find(state: Trip) -> dict[str, Any]:
        return {"experiences": EXPERIENCES, "messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(Trip)
    graph.add_node("find", find)
    graph.add_edge(START, "find")
    return graph.compile()


def create_agents() -> dict[str, PlatformBridge]:
    """Return the agents by the feature they are for."""
    graphs = {
        "agentic_chat": chat(SCRIPTS["agentic_chat"]),
        "backend_tool_rendering": chat(SCRIPTS["backend_tool_rendering"], get_weather),
        "human_in_the_loop": human_in_the_loop(),
        "agentic_generative_ui": agentic_generative_ui(),
        "tool_based_generative_ui": chat(SCRIPTS["tool_based_generative_ui"]),
        "shared_state": writer(SCRIPTS["shared_state"], key="recipe", tool="generate_recipe", after=None),
        "predictive_state_updates": predictive_state_updates(),
        "subgraphs": subgraphs(),
        "agentic_chat_reasoning": chat(SCRIPTS["agentic_chat_reasoning"]),
        "agentic_chat_multimodal": chat(SCRIPTS["agentic_chat_multimodal"]),
    }
    # The pages read the value of an interrupt, as those written for the published adapter do.
    config = LangGraphConfig(emit_interrupt_outcome=False)
    return {name: LangGraphBridge(graph, config) for name, graph in graphs.items()}
