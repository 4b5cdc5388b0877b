"""The public names of the published AG-UI adapters, one package each, as thin modules on the bridges of this package."""
