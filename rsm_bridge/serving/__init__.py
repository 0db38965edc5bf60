"""What brokers and probes talk to, and what runs beside."""
