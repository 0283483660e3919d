"""StreamHouse: a streaming platform whose data lives as open files in an object store."""

__version__ = "0.1.0"
