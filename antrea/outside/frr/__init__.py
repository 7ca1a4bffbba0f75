"""FRR in a container of its own, driven over the sockets of its daemons."""
