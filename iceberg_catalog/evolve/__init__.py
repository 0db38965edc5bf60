"""How a table follows its schemas."""
