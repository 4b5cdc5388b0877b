"""`python -m benchmarks`: this server beside the usual ways to stream AG-UI, in one run on one machine."""
