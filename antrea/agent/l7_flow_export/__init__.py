"""The part of the agent that gets requests of application protocols from the engine."""
