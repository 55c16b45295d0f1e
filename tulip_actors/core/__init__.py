"""Pure data and rules: no I/O, no clock, no process. Everything else stands on this."""
