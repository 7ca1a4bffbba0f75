"""The flow aggregator: collects the agents' records of connections, joins both Nodes' halves, and passes them on."""
