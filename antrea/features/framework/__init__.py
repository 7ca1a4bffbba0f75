"""Building blocks of features."""
