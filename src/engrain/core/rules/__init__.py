"""Pure rules: read statements, fill slots, reconcile, score importance and plan removals."""
