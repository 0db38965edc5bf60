"""Names, schemas and data files of tables."""
