"""What the leading replica alone does."""
