"""Jobs that are declared over REST, and what REST shows of all of them."""
