"""The REST API: jobs, runs and who asked for what, for everybody who can speak HTTP."""
