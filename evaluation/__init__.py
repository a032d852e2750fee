"""A tenant's quality, measured: sets of questions, runs, comparisons, trials of a change, drift."""
