"""Answering a fetch from the store."""
