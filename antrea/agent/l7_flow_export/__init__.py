"""The part of the agent that gets HTTP requests from the engine."""
