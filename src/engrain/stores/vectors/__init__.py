"""Vector servers that are fed from the outbox of the item store."""
