"""Pure rules: what a statement says, which slot it fills, what a removal drags along."""
