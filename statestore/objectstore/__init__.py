"""Object stores: one small interface for a local directory and for an S3 bucket."""
