"""Membership: which agents are alive, by gossip between them."""
