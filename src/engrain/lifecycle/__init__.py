"""What happens to memories while nobody asks."""
