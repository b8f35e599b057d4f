"""Failures of a topology: what was selected, what is lost, and what runs slower."""
