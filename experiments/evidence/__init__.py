"""The evidence study: which images, which trials, and what came out."""
