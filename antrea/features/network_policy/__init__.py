"""Antrea's own policies: tiers, cluster and namespaced policies, and groups."""
