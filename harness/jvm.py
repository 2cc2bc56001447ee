"""Options for JVMs that run for seconds."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Better compiled code would not save the time that compiling it takes."""
OF_SPARK = {"spark.driver.extraJavaOptions": " ".join(SHORT_LIVED)}
"""Settings for a Spark session whose driver is such a JVM."""
