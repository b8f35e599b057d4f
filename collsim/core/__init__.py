"""Words that all rooms share: errors, units, operations, arrays, files."""
