"""The embedded model: a small one that answers when no provider is configured, in a supervised child process."""
