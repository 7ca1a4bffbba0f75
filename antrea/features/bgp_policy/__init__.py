"""BGPPolicy: Nodes advertise addresses to routers by BGP, and are watched by routers by BFD."""
