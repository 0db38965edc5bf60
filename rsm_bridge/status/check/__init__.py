"""`tierberg config check`."""
