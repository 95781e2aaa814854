"""A memory as files that leave it and come in: export, load, import."""
