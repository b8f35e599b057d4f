"""Pictures as SVG: topologies, byte matrices, residuals."""
