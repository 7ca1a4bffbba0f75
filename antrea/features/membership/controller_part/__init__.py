"""Effects of membership in the controller: the key of the gossip of agents."""
