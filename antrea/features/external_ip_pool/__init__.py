"""ExternalIPPool: addresses for Egresses and Services of type LoadBalancer."""
