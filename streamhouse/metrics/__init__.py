"""Counters of the hot paths and their exposition for Prometheus."""
