"""Links: topics of another Kafka cluster become topics here, at the same offsets."""
