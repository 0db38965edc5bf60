"""Writing data files, and reading pages of them."""
