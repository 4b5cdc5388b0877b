"""The fault suite: tests of the faults of `docs/reliability.md`, named after them."""
