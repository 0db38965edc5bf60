"""Repairs and upkeep of tables."""
