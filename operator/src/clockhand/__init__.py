"""Clockhand: a job scheduler for Kubernetes and for everything that can speak HTTP."""
