"""Which Nodes live: gossip and its feeds."""
