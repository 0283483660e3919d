"""The STRM segment format, sans-IO: batches in, object bytes out, and back."""
