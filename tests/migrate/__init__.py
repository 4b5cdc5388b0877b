"""`make test-migrate`: the examples of each published package with only the import changed, in an environment that has that package."""
