"""Google ADK agents: `ADKBridge(agent)`. The SDK is imported only when a bridge is created.

`bridge.py` owns the SDK's services and `adapter.py` serves one thread. For each run, `run_input.py` builds the input for ADK, after the
edits of the application (`input_edits.py`), `session_sync.py` and `sessions.py` synchronize ADK's session with the thread,
`external_events.py` adopts what another server wrote to it, `run.py` executes it, `translate.py` translates its events to AG-UI,
`outcome.py` builds the terminal event and `memory.py` the data for the next run. `interrupts.py` converts interrupts, `instrumentation.py`
is the plugin inserted into a run, and `hooks.py` and `event_hooks.py` call the user's hooks.
"""
