"""Exactly once: killed, raced, retried, stopped and resumed epochs end as undisturbed ones."""
