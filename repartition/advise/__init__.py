"""`tierberg advise`."""
