"""The append-only log: typed events, their codec, projections, and logs that keep one contract."""
