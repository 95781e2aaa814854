"""The demo: scenes that run the real verbs on a temporary store."""
