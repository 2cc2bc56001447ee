"""The clients whose programs host members of groups, and the kinds of groups that each knows."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.jvm import OF_KAFKA
from harness.tools import TOOLS
from tests.compat.common import tool, unavailable
from tests.compat.groups import Kind

RANGE, COOPERATIVE, ROUNDROBIN = Kind("range"), Kind("cooperative-sticky"), Kind("roundrobin")
UNIFORM, REMOTE_RANGE = Kind("uniform", "consumer"), Kind("range", "consumer")


@dataclass(frozen=True, slots=True)
class Client:
    """How a client's program is started, and what kinds of groups it knows."""

    command: Sequence[str]
    kinds: Sequence[Kind]
    static: bool = True
    env: Mapping[str, str] | None = None


def _python(module: str, *kinds: Kind) -> Client:
    return Client([sys.executable, "-m", f"tests.compat.members.{module}"], kinds, env={"PYTHONPATH": _path()})


def _path() -> str:
    return os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])


def _java() -> Client:
    java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    classes = tool("compat/java/GroupMembers.class").parent
    return Client(
        [java, *OF_KAFKA, "-Xmx256m", "-cp", f"{TOOLS / 'kafka/libs'}/*:{classes}", "GroupMembers"],
        (RANGE, COOPERATIVE),
    )


def _kafkajs() -> Client:
    node = shutil.which("node") or unavailable("node", "install Node.js, 18 or later")
    program = str(Path(__file__).parent / "js" / "members.js")
    env = {"NODE_PATH": str(tool("compat/js/node_modules")), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return Client([node, program], (ROUNDROBIN,), static=False, env=env)


CLIENTS: Mapping[str, Callable[[], Client]] = {
    "java": _java,
    "librdkafka": lambda: _python("librdkafka", RANGE, COOPERATIVE),
    "franz-go": lambda: Client([str(tool("compat/franz-members"))], (RANGE, COOPERATIVE)),
    "aiokafka": lambda: _python("aiokafka_members", RANGE),
    "kafka-python": lambda: _python("kafka_python_members", RANGE),
    "kafkajs": _kafkajs,
}
MODERN = ("java", "librdkafka")
"""The clients that know the consumer protocol."""
