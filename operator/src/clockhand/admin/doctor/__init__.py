"""`clockhand doctor`: looks at an installation, says what is amiss and what to do, and mends what can be mended safely."""
