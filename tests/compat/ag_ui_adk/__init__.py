"""Examples for `ag_ui_adk`, written after its README, with scripted models. `test_ag_ui_adk_examples.py` changes their import."""
