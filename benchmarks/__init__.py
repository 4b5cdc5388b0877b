"""`python -m benchmarks`: compare this server with the usual ways to stream AG-UI, in one session on one machine."""
