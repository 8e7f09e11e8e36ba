"""The paper as commands: grids of runs, made and continued, beside the numbers that were published."""
