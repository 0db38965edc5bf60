"""Typed values of topics."""
