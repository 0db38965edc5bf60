"""Deleting what nothing needs any more."""
