"""The REST API under load: jobs made, runs listed, and what its load does to firing."""

from benchmarks.rest.suite import Settings, run

__all__ = ["Settings", "run"]
