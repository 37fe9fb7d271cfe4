"""What SQL means, without a JVM: plans, statements, expressions, and the texts they come from."""
