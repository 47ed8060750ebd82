"""Two models, networks, modules or engines held against each other."""
