"""Rows and helpers of test_encryption.py, which is in several lanes."""

TEXTS = ["true", "TRUE", "True", "tRuE", "false", "FALSE", "False"]
BLANKS = [" true ", "\ttrue\n", " FALSE"]
