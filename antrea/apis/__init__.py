"""Nouns on the wire: what Kubernetes, antctl and the CNI plugin send and read (msgspec, no logic)."""
