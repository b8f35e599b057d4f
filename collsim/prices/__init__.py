"""Prices and power of GPUs, as data with sources, and what a collective costs by them."""

from collsim.prices.costs import Cost, cost_of
from collsim.prices.prices import Figure, Price, price_of, with_own

__all__ = ["Cost", "Figure", "Price", "cost_of", "price_of", "with_own"]
