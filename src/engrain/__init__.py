"""engrain: a memory for AI agents that stays."""
