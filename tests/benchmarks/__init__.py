"""Ours against what a user would otherwise run: `make bench`."""
