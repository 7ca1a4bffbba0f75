"""ExternalNode: machines outside the cluster that run an agent, and what policies select of them."""
