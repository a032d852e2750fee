"""What requests may spend, decided before they begin: leases over all scopes at once. Knows `tenancy` alone."""
