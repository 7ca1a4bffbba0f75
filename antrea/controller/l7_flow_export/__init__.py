"""The part of the controller that reads which workloads have an annotation that is for Pods."""
