"""Objects that second copies (projections) keep in the store."""
