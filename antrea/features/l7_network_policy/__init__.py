"""L7NetworkPolicy: connections of rules with application protocols go through an engine that judges each request."""
