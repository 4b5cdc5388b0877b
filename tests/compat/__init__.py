"""The names of the published adapters, as their users import and call them."""
