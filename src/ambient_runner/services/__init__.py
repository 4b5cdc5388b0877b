"""What a run stands on: a workspace, its repositories and its workflow. There is no HTTP here, and no bridge sees this room."""
