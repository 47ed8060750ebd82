"""Sizes as exact integer expressions of symbols: algebra, solver, and propagation through a model."""
