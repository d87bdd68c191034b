"""Worker pools under load, and beside four queues that people use on PostgreSQL."""

from benchmarks.pool.suite import Settings, run

__all__ = ["Settings", "run"]
