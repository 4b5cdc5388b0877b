"""Middleware of `ag_ui_langgraph` for agents of `create_agent`."""
