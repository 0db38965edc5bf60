"""Topics whose values have columns."""
