"""Partition leadership: offsets, idempotence, tail, roll, merge, retention, reads."""
