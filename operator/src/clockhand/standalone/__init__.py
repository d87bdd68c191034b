"""Clockhand without a cluster: what `clockhand dev` runs beside the processes that run in a cluster too."""
