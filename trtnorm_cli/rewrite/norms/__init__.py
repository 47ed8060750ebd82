"""Recognise normalizations that are written in pieces. Reads only."""
