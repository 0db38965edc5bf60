"""Spark sessions and catalogs."""
