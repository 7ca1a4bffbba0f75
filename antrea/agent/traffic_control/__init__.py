"""Effects of TrafficControl in the agent."""
