"""Commands that work on what they are given: no settings, no database, no cluster."""
