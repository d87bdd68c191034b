"""A node without containers: pods run as processes of this machine, and Deployments keep pods."""
