"""The doors: Kafka, HTTP and gRPC."""
