"""What was used and what it cost: prices as versioned data, one event a hop, a ledger for each tenant."""
