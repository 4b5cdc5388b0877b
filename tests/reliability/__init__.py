"""Two faults, here and with the peers: clients that join a live run, and a kill -9 in the middle of one. `make reliability` runs it.

Peers are installed from PyPI and npm into a throw-away environment. What cannot be installed is reported so.
"""
