"""The only place that talks to kopf: thin handlers that hand objects to the mirror."""
