"""Measure recall quality on a user's own questions."""
