"""Links: topics of another Kafka cluster are copied into topics here, at the same offsets."""
