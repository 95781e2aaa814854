"""Durable tasks: leases, replayed steps, effects, recovery."""
