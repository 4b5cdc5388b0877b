"""The soak: three servers on one SQLite file, a random fault every few seconds, and clients that compare all they receive.

`make soak MINUTES=20`, or `python -m tests.soak --minutes 20 --seed 7`. `docs/reliability.md` has a report.
"""
