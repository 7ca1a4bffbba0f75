"""The part of the agent that exports flow records."""
