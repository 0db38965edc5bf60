"""The segment index."""
