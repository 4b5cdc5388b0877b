"""LangGraph graphs behind AG-UI. `bridge.py` is the door, `conversation.py` runs one thread, `telling.py` tells a run of it, `translate.py`
is pure.

Nothing is imported here: the SDK is needed only by those who use it. `ambient_runner.langgraph` has the public names.
"""
