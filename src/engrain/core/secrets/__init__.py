"""Find and redact keys, passwords and personal data."""
