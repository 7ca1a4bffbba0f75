"""Effects of L7NetworkPolicy in the agent."""
