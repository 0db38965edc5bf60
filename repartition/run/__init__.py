"""One run of one projection."""
