"""ovs-vswitchd: flows, groups, meters, packets, conntrack."""
