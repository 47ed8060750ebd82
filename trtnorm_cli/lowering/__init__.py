"""A rewriting in another precision: calibrated on inputs, converted, and held to its error budget."""
