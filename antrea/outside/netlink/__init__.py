"""The kernel's links, addresses, routes and conntrack."""
