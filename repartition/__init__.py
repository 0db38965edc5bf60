"""PySpark jobs that derive tables from the topics' tables, laid out by the user's analytic keys."""
