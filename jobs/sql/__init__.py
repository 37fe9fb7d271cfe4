"""SQL text -> bound, typed statements and logical plans. Spark's own analyzer does the binding."""
