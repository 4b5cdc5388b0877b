"""Child processes: how they start, what is exchanged with them, and an end that leaves none running."""
