"""ServiceExternalIP in the agent: effects."""
