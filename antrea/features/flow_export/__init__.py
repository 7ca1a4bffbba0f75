"""Flow records: who talks to whom, by which policies, and how much."""
