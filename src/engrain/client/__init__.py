"""The client of `engrain serve`: a pool of connections, and values and errors as they cross the wire."""
