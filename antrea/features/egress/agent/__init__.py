"""Egress in the agent: who holds which address, and the flows and marks of Pods that leave with it."""
