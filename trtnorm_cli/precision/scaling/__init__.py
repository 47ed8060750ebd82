"""Tensors beyond the range of a type, held as a power of two of themselves."""
