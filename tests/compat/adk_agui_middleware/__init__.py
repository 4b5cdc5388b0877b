"""Examples for `adk_agui_middleware`, written after its README and its examples, with a scripted model."""
