"""The agents' life: pure aggregates, the one shell that hosts them, and the performers that do their work."""
