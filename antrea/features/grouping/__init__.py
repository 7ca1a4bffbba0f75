"""Members of groups: the Pods of each selector, computed once for all features that select Pods."""
