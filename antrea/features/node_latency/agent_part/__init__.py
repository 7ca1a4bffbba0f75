"""Effects of NodeLatencyMonitor on a Node."""
