"""SQL without a JVM: logical plans, statements, expressions, and their source texts."""
