"""Measurements of StreamHouse beside Apache Kafka on the same machine, with the same client.

`python -m bench` runs both brokers and writes ratios; `python -m bench.limits` measures StreamHouse
alone at its stated limits. Nothing under `streamhouse/` may import this package.
"""
