"""Effects of BGPPolicy in the agent."""
