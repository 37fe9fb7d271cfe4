"""The aggregate functions, one entry each; see face.py and registry.py."""
