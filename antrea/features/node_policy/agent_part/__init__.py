"""Effects of policies on Nodes."""
