"""AWS Strands agents as AG-UI agents.

`bridge.py` creates adapters, `adapter.py` serves one thread, `run.py` executes one run and `translate.py` translates the SDK's events.
Nothing is imported here, because only users of this bridge have the SDK installed. `ambient_runner.strands` has the public names.
"""
