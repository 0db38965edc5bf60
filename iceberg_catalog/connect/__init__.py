"""Catalogs and file systems."""
