"""OpenFlow as values: tables, fields, matches, actions, flows, groups. No I/O."""
