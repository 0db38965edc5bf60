"""Messages and statuses of the gRPC protocol."""
