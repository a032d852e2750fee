"""Where cache entries live: the only modules that talk to a cache's back end."""
