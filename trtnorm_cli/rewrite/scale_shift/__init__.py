"""How a scale and shift per channel travels through a graph, and which operators can take it into their weights."""
