"""The `ambient` command: `main.py` names its verbs, one module each."""
