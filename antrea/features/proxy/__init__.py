"""Services: while AntreaProxy is off, kube-proxy on the Node answers for them."""
