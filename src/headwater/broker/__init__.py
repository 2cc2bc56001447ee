"""The server for Kafka clients: connections, and one handler module per family of APIs."""
