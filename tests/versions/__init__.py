"""`make test-versions`: the tests of each bridge with the lowest and the newest version of its SDK, each in an environment of its own."""
