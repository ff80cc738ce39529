"""What checks and measures: conformance, speed, memory, cost, theory, this machine."""
