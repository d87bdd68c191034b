"""Pure values and decisions: no I/O, no clock. Time comes in as a parameter."""
