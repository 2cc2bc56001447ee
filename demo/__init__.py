"""The demo: one set of files, read by Kafka clients and by table engines."""
