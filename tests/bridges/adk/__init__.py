"""The ADK bridge on the real SDK, with a model that plays a script.

Tests are named after the case they hold:
D1 text, D2 text before a call, D3 a call that comes twice, D4 thoughts, D5 thoughts before a call, D6 state, D7 failures, D8 several
agents, D9 answers with a schema, D10 calls that wait together with others, D11 their answers, D12 several that wait, D13 confirmations,
D14 credentials, D15 streamed arguments, D16 artifacts, D17 rewinds, D18 hooks, D19 locks, D20 the history routes, D21 frames,
D22 threads that wait, D23 stored sessions, D24 replicas.
"""
