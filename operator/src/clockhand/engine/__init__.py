"""The use cases: each loop reads facts, decides with the domain, writes through the store; each has a single step."""
