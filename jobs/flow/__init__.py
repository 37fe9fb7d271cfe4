"""What flows between executors: chunks of rows with weights; and failures, on their way to the driver. No Spark, no store."""
