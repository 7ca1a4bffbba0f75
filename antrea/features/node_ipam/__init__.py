"""Pod CIDRs of Nodes, which the controller allocates in place of kube-controller-manager."""
