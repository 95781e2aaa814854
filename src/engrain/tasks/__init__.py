"""Durable tasks: leases, replay, effects, and the care of what was left unfinished."""
