"""Rounds over all projections."""
