"""Measured figures, each beside its floor: `python -m benchmarks run` (see README.md in this folder)."""
