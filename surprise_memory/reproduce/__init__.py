"""The paper as commands: grids of runs, and a report of them beside the paper's numbers."""
