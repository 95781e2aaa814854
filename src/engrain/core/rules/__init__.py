"""Pure rules: read statements, fill slots, score importance and plan removals."""
