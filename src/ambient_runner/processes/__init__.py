"""Child processes: their start, their sandbox, JSON-RPC over their pipes, and an end that leaves none running."""
