"""Egress in the agent: the holders of addresses, and the flows and marks of Pods that leave with them."""
