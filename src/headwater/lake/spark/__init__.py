"""Everything that runs on Spark: sessions, jobs, and what executors do."""
