"""`tierberg verify` and `tierberg inspect`."""
