"""Commits: snapshots, manifests, state, and reading them again."""
