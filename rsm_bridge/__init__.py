"""The bridge: gRPC server, store layout, caches, settings, metrics and the `tierberg` command."""
