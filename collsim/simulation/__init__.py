"""Simulation, from a checked request to a result: the only conductor."""
