"""The quality gate: what a committed epoch passes before readers see it."""
