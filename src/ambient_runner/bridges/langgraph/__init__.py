"""LangGraph graphs behind AG-UI.

`bridge.py` creates adapters, `adapter.py` serves one thread, `run.py` one run. `run_input.py` decides what the graph receives, and
`translate.py` turns its stream into events. Nothing is imported here: only those who use the SDK need it. `ambient_runner.langgraph` has
the public names.
"""
