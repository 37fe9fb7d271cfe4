"""One epoch, from its barrier to its commit."""
