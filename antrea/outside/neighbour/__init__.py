"""ARP and neighbour discovery: announcements and probes."""
