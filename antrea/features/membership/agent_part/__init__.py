"""Membership of Nodes: gossip and its feeds."""
