"""Effects of Beacons on a Node."""
