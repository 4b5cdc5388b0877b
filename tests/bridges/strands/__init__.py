"""The Strands bridge on the real SDK, with a model that plays a script.

Tests are named after the case they hold:
A1 text, A2 a tool call, A3 several, A4 one without arguments, A5 reasoning, A6 kinds of results, A7 state from a tool,
A8 a tool of the client, A9 together with tools of the agent, A10 its error, A11 its empty result, A12 results in disorder,
A13 tool behaviours, A14 questions to a person, A15 approvals, A16 failures and limits, A17 runs cut short, A18 threads side by side,
A19 graphs and swarms, A20 agents as tools, A21 sessions, A22 what cannot be encoded, A23 what must never be sent.
"""
