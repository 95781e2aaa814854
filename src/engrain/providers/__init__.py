"""Embedders and language models, each behind a port: the local one first, then those of a service."""
