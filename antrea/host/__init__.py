"""The Linux host as values: links, addresses, routes, nftables, OVS ports. No I/O."""
