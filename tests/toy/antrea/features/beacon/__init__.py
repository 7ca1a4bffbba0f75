"""A toy feature: the host answers for the addresses of Beacons. It shows all that a feature can plug into."""
