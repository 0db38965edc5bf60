"""A whole segment: into its objects, and back."""
