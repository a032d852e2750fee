"""The edge: HTTP, command line, wiring."""
