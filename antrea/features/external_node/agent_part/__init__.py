"""Effects of ExternalNode in the agent of such a machine."""
