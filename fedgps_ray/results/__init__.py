"""What a trial leaves on disk."""
