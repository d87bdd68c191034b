"""The worker of a pool and the SDK for handlers: it speaks HTTP with the API and needs nothing else of Clockhand."""
