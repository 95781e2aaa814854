"""The write path: redact, find facts, index words, embed, write in one transaction."""
