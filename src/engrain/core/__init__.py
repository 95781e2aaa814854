"""Pure values and rules: no clock, no file, no socket."""
