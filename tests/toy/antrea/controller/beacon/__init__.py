"""Effects of Beacons in the controller."""
