"""A topology as one run sees it: links with their capacities, routes, and bounds on what they allow."""
