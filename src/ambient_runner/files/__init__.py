"""Files and directory trees that an agent can change, accessed without ever leaving them."""
