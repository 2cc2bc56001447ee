"""Options for JVMs that run for seconds."""

from harness.tools import TOOLS

QUICKLY_COMPILED = "-XX:TieredStopAtLevel=1"
"""Better compiled code would not save the time that compiling it takes."""
SHORT_LIVED = (QUICKLY_COMPILED, "-XX:+UseSerialGC")
ALL_SHORT_LIVED = {"JDK_JAVA_OPTIONS": QUICKLY_COMPILED}
"""The environment of a process that starts such JVMs itself, with options of its own."""
OF_SPARK = {"spark.driver.extraJavaOptions": " ".join(SHORT_LIVED)}
"""Settings for a Spark session whose driver is such a JVM."""
_ARCHIVE = TOOLS / "kafka" / "classes.jsa"
_ARCHIVED = (f"-XX:SharedArchiveFile={_ARCHIVE}", "-Xlog:disable") if _ARCHIVE.exists() else ()
OF_KAFKA = (*SHORT_LIVED, *_ARCHIVED)
"""Options for such a JVM whose class path begins with Kafka's libraries: their classes are mapped, not loaded. Java
does without an archive that is not of itself and of these jars."""
AS_REFERENCE = (QUICKLY_COMPILED, *_ARCHIVED)
"""Options for a server of Apache Kafka that is asked for minutes and not measured. It chooses its collector itself."""
