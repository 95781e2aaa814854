"""The HTTP API of a store: pip install "engrain[server]"."""
