"""One handler per Kafka API: request in, response frame out."""
