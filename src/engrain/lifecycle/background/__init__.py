"""The threads that work while a memory is open: vectors, a vector server, a small model."""
