"""What Python code calls, and what the command line shares with it."""
