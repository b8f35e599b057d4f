"""A request: what a caller asks, read and checked as a whole."""
