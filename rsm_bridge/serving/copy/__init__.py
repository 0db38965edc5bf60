"""Copying one segment into the store."""
