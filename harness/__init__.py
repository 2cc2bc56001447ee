"""What tests, demo and benchmarks share: real servers, each started in one way, and virtual time.

The servers are Headwater, Apache Kafka, etcd, Oxia, S3, Azurite, Spark and Trino. Nothing here imports tests, demo or
benchmarks.
"""
