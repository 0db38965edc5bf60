"""What the store has of segments."""
