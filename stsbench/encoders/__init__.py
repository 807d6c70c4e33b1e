"""Everything that turns sentences into embeddings: encoders, pooling, the engine and the store."""
