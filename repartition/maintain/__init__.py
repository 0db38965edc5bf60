"""Upkeep of a projection."""
