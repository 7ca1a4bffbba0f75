"""kube-apiserver: client, feeds, statuses, Events, leases."""
