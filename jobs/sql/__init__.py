"""SQL text -> bound, typed statements and logical plans. Spark's analyzer does the binding."""
