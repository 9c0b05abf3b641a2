"""Policy scripts: the engine that runs them, the loader that checks them, the vocabulary that they speak."""
