"""Who a caller is, what they may read, and what they may spend. Knows no package above it."""
