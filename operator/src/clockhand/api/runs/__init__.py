"""`kubectl get runs`: an aggregated API server over Postgres, so that history costs the control plane nothing."""
