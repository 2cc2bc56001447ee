"""HTTP: the REST catalog, and access to pages."""
