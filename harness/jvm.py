"""Options for JVMs that run for seconds."""

from harness.tools import TOOLS

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Better compiled code would not save the time that compiling it takes."""
OF_SPARK = {"spark.driver.extraJavaOptions": " ".join(SHORT_LIVED)}
"""Settings for a Spark session whose driver is such a JVM."""
_ARCHIVE = TOOLS / "kafka" / "classes.jsa"
_ARCHIVED = (f"-XX:SharedArchiveFile={_ARCHIVE}", "-Xlog:disable") if _ARCHIVE.exists() else ()
OF_KAFKA = (*SHORT_LIVED, *_ARCHIVED)
"""Options for such a JVM whose class path begins with Kafka's libraries: their classes are mapped, not loaded. Java
does without an archive that is not of itself and of these jars."""
