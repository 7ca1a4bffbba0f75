"""The part of the agent that exports records of connections."""
