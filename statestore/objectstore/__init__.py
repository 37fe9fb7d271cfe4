"""Object stores: a local directory or an S3 bucket behind one small interface."""
