"""Default settings and examples for each deployment size, as packaged data."""
