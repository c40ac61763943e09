"""Hints that work may be claimable. Losing one costs latency, doubling one costs nothing; every worker also polls."""
