"""Who saw what, on whose authority, and the proof that no record was altered. Imports `tenancy` alone."""
