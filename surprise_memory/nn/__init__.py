"""Networks, devices, running statistics and pure formulas."""
