"""TrafficControl: copies of Pods' packets, or the packets themselves, sent to a port of the switch."""
