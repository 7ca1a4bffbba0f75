"""What features are written with."""
