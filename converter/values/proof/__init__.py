"""Typed columns without the values' bytes: proven by writing them again."""
