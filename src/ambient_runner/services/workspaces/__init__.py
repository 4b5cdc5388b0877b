"""A workspace per thread: its directory, repositories, workflow and uploads."""
