"""`python -m tierberg` is the `tierberg` command."""

from tierberg.cli import main

main()
