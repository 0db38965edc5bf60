"""Tables of topics, from what the store has."""
