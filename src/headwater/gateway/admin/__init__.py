"""Administration over HTTP: what the routes of topics, groups, tables, users and the cluster share or do."""
