"""Effects of policies on a Node: packets sent to the agent, connections that are flushed."""
