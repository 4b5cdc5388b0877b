"""A workspace per thread: its folder, repositories, workflow and uploads."""
