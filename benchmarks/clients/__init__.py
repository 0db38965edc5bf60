"""Kafka clients as processes of their own, so that their CPU and their locks are nobody else's."""
