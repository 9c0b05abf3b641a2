"""Everything that touches the world: HTTP, providers, the command line, configuration, and the composition root."""

__version__ = "0.1.0"
