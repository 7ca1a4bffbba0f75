"""The command proxy."""
