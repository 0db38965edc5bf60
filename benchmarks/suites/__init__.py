"""One module per suite of measures.toml; each has `measure(plan) -> cases by measure id`."""
