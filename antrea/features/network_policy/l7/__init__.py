"""Rules with l7Protocols: an inline engine judges each request of the connections that they match."""
