"""Benchmarks: the budgets of the design, measured as ratios of medians between sides that run in turns on one machine."""
