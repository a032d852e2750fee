"""Documents in, passages out: parsing, chunks, embeddings, and each tenant's collection."""
