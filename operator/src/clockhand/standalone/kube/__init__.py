"""A small Kubernetes API server: as much of one as stock kubectl and Clockhand's own processes need, without a cluster."""
