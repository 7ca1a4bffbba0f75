"""Effects of ExternalNode in the controller."""
