"""Flow records: the ends of connections, the policies that decided, and their traffic."""
