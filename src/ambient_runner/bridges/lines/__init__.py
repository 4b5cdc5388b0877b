"""The bridge to commands that print lines: of text, or of JSON."""
