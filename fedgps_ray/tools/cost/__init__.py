"""Estimates the cost of a trial: counted in tiny rounds, timed on this machine."""
