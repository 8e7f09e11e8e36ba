"""Instruments that look at bonuses and runs: doctor, bench, figures, videos, statistics."""
