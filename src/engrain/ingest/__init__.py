"""The write path: check, cut into words, embed, one transaction."""
