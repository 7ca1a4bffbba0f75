"""ovsdb-server: replica, transactions, feeds of ports and BFD."""
