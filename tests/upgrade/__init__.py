"""A store and documents that an earlier release wrote, read by this one."""
