"""Tasks of the leading replica."""
