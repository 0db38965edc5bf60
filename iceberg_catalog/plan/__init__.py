"""What a table must become. Pure."""
