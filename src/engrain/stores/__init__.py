"""Backends: each knows the ports and the core, and no other backend."""
