"""The server for Kafka clients: connections, and one module per family of APIs."""
