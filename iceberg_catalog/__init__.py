"""Names, tables, the publish plan and the commit: how stored segments become an Iceberg table."""
