"""The flow aggregator: collects the agents' flow records, joins both Nodes' halves, and passes them on."""
