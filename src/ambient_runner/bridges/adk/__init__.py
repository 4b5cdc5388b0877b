"""Google ADK agents: `ADKBridge(agent)`. Nothing of the SDK is imported until one is made.

`bridge.py` owns the SDK's services. For each run `job.py` says what is to be done, `sync.py` and `sessions.py` keep ADK's session in step
with the thread, `run.py` runs it and `translate.py` turns its events into AG-UI. `questions.py` knows the questions ADK puts to a person,
`plugin.py` is our hand inside a run, `hooks.py` and `stages.py` are a user's.
"""
