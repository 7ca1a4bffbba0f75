"""Effects of policies in the controller: the default Tiers."""
