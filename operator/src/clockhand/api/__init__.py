"""Servers: the aggregated Kubernetes API for runs."""
