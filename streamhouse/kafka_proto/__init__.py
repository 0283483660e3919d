"""The Kafka wire protocol, sans-IO: bytes in, values out, and back."""
