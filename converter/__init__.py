"""Kafka bytes to Arrow, Parquet and a segment index, and back: pure functions over buffers."""
