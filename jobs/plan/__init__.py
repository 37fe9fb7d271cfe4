"""Logical plan -> stream plan (keys, state tables) -> fragments -> levels."""
