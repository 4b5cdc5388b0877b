"""The four real agents against a scripted model: `python -m tests.agents` prints what works, `python -m tests.agents.record` records them.

`packages.py` installs them, `model.py` is the model and `script.py` what it says, `world.py` starts `ambient serve` with one of them, and
`scenarios.py` and `sandbox.py` are what a person would try.
"""
