"""Quality checks, which a committed epoch must pass before readers see it."""
