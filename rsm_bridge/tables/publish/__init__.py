"""One run of publishing for one table."""
