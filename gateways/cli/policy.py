"""The commands for those who write policies."""
