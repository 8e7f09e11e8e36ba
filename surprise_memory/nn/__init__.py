"""Networks, running statistics and pure formulas."""
