"""How tests start JVMs that live for seconds."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Code that is compiled better would never earn what compiling it takes."""
OF_SPARK = {"spark.driver.extraJavaOptions": " ".join(SHORT_LIVED)}
"""Settings of a session whose driver is such a JVM."""
