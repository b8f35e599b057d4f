"""Lower bounds on the time of a collective: cuts of the ranks, and linear programming where cuts say too little."""
