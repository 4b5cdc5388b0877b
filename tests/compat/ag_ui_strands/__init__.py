"""Examples for `ag_ui_strands`, written after its README and the document of the integration, with a scripted model."""
