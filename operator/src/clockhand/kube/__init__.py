"""The only place that talks to the Kubernetes API; callers see typed values and `clockhand.errors`."""
