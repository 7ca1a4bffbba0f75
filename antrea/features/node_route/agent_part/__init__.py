"""Effects of the routes to other Nodes: checks whether packets arrive."""
