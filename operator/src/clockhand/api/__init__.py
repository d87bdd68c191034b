"""Servers: the aggregated Kubernetes API for runs, and the API for workers."""
