"""Effects of Egress on a Node: probes, announcements, hand-over of addresses."""
