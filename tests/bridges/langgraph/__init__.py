"""The LangGraph bridge on the real SDK, with a model that plays a script."""
