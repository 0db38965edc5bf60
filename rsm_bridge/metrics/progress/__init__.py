"""Facts about progress: of the store, of Kafka."""
