"""Instruments that look at bonuses and runs: doctor, bench, inspector, figures, statistics."""
