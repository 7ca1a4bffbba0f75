"""Addresses of ExternalIPPools in the agent: neighbours are asked for them before this Node uses them."""
