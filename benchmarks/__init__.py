"""Benchmarks of the design's budgets: ratios of medians between sides that run in turns on one machine."""
