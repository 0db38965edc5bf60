"""Settings: what `tierberg.yaml` may say, and what it means."""
