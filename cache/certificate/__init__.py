"""The certificate: how many semantic hits are wrong, at most, and what follows from it."""
