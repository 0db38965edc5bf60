"""Who may work when, and with how much memory."""
