"""What store and catalog have of topics."""
