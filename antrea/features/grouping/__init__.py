"""Members of groups: which Pods a selector means, computed once for all features that select Pods."""
