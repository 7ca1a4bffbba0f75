"""NodeLatencyMonitor: round-trip times between Nodes."""
