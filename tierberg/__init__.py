"""The `tierberg` command: its subcommands, the demo, and servers as local processes."""
