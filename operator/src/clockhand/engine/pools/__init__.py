"""Runs for workers: handed to those who wait, queued for those who come, and rescued from those who fall silent."""
