"""Compiled loops over bytes."""
