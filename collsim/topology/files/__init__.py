"""Topology files: from bytes to checked sections and figures."""
