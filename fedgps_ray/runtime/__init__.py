"""The round loop and what carries it out."""
