"""External IPs of Services of type LoadBalancer, from ExternalIPPools."""
