"""The name of `ag_ui_strands.citations`."""

from ambient_runner.bridges.strands.citations import CITATIONS_METADATA_KEY

__all__ = ["CITATIONS_METADATA_KEY"]
