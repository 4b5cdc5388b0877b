"""The ACP bridge against a fake agent (`fake_agent.py`), and against recordings of real ones."""
