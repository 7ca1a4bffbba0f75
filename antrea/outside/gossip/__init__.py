"""Which agents live: SWIM gossip, sealed, between the Nodes that Kubernetes lists."""
