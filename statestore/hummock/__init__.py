"""Hummock: an LSM tree on object storage. Typed rows under memcomparable keys, read at an epoch, written a batch per epoch."""
