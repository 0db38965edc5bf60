"""Counters, the page that shows them, and what is known about progress."""
