"""Clusters: nodes joined by a fabric of switches, planned, counted and wired."""
