"""What an epoch takes: the barrier with its files and moments, and the fragments that read them."""
