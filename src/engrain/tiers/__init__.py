"""The kinds of memory, each usable alone."""
