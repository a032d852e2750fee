"""The learned second opinion on a pair of questions; optional, trained by `benchmarks.train_verifier`."""
