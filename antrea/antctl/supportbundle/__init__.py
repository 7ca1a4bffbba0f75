"""The command supportbundle."""
