"""Adapters of the object store port: local directory, memory, and wrappers."""
