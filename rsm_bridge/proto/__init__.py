"""Protobuf module generated from `proto/tierberg/v1/rsm.proto`; `python -m rsm_bridge.proto.generate` renews it."""
