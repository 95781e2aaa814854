"""Measure what engrain finds and how fast it is, next to others, on this machine."""
