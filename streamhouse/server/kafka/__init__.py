"""The Kafka door: listener, connections in order, one handler per API."""
