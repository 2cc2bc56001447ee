"""The HTTP API, the read-only Iceberg REST catalog, the schema registry and Arrow Flight SQL.

HTTP is served by Litestar on uvicorn's protocol with httptools, Flight SQL by gRPC.
"""
