"""Objects that the controller keeps: certificates, default Tiers, info objects, keys."""
