"""Hummock: an LSM tree on object storage.

Typed rows with memcomparable keys, read as of an epoch, written per epoch.
"""
