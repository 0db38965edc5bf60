"""Values in Protobuf."""
