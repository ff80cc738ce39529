"""Data sets, partitions and batches."""
