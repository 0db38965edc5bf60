"""One file per server."""
