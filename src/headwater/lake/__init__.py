"""Topics become tables: planning, Spark jobs, table formats (Iceberg, Delta), bulk appends, versions."""
