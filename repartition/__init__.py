"""PySpark jobs that keep second copies (projections) of topics' tables, laid out by the user's analytic keys."""
