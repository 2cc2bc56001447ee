"""All code that uses Spark: sessions, jobs, and the work of executors."""
