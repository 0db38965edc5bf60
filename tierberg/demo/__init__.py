"""`tierberg demo`: real records from a stock broker into an Iceberg table and back, compared on the way."""
