"""Adapters of the metadata ports, and their migrations."""
