"""Other people's clients and Kafka's own tools on a secured cluster of two brokers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from harness.jvm import OF_KAFKA
from harness.patience import Patience, eventually
from harness.ports import free_ports
from headwater.settings.settings import ListenerSecurity, Security, Settings
from tests.compat.common import TOOLS, tool, unavailable
from tests.compat.kafka_tools import KafkaTools
from tests.support.certificates import Signer, issue, key_document
from tests.support.promise import promise
from tests.support.running import Running
from tests.support.secured import PASSWORDS as USERS
from tests.support.secured import InProcess, running

PROMISES = ("S1", "S2")

PASSWORDS = {"admin": "admin secret", "alice": "wonder=land,"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAIT_S = 30.0
TOKEN_S = 300
pytestmark = pytest.mark.timeout(180)
SIGNER = Signer("key", "RS256")


@dataclass(frozen=True)
class Cluster:
    """A secured cluster, and where everything for it lies."""

    directory: Path
    addresses: Mapping[str, str]

    def librdkafka(self, listener: str, **more: Any) -> dict[str, Any]:
        """Settings of librdkafka for a listener, as the user `admin` unless told otherwise."""
        found: dict[str, Any] = {"bootstrap.servers": self.addresses[listener], "security.protocol": listener}
        if listener.endswith("SSL"):
            found["ssl.ca.location"] = str(self.directory / "issuer.pem")
        if listener.startswith("SASL"):
            found |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "admin", "sasl.password": PASSWORDS["admin"]}
        return {**found, **{name.replace("_", "."): value for name, value in more.items()}}

    def log(self) -> str:
        return (self.directory / "stderr").read_text()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers with every protocol; the users are written to the ledger before the brokers run."""
    directory = tmp_path_factory.mktemp("secured")
    issuer = issue(directory, "issuer")
    server = issue(directory, "server", issuer)
    issue(directory, "robot", issuer, "C=DE,O=Acme,CN=robot")
    issue(directory, "stranger", issue(directory, "another-issuer"))
    (directory / "keys.json").write_text(key_document(SIGNER))
    tls = f'certificate = "{server.certificate}"\nkey = "{server.key}"\n'
    settings = f"""
[security]
acls = true
super_users = "User:admin;User:CN=robot,O=Acme,C=DE;User:token-holder"
failed_logins_per_minute = 1000
reload_ms = 100
[groups]
consumer_heartbeat_interval_ms = 200
[security.oauth]
jwks = "{directory}/keys.json"
issuer = "https://issuer"
audience = "headwater"
[security.listeners.SASL_PLAINTEXT]
mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
[security.listeners.SASL_SSL]
mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
{tls}
[security.listeners.SSL]
client_auth = "required"
client_ca = "{issuer.certificate}"
{tls}
"""
    addresses = {name: f"127.0.0.1:{free_ports(2)}" for name in ("SASL_PLAINTEXT", "SASL_SSL", "SSL")}
    kafka = ",".join(f"{name}={address}" for name, address in addresses.items())
    up = Running(directory, brokers=2, settings=settings, kafka=kafka)
    up.prepare()
    for name, password in PASSWORDS.items():
        file = directory / f"{name}.password"
        file.write_text(password)
        up.cli("user", "add", name, "--config", str(up.config), "--new-password-file", str(file))
    with up:
        yield Cluster(directory, addresses)


def token_for(audience: str) -> str:
    now = int(time.time())
    claims = {"iss": "https://issuer", "aud": audience, "sub": "token-holder", "iat": now, "exp": now + TOKEN_S}
    return SIGNER.token(claims)


def new_topic() -> str:
    return f"secured-{uuid.uuid4().hex[:10]}"


def roundtrip(config: dict[str, Any]) -> None:
    """Create a topic, write a record, read it back."""
    topic = new_topic()
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_S)
    assert topic in admin.list_topics(timeout=WAIT_S).topics
    failures: list[Any] = []
    producer = Producer({**config, "enable.idempotence": True})
    producer.produce(topic, b"hello", partition=1, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0 and failures == [None]
    consumer = LibrdkafkaConsumer({**config, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 1, 0)])
        message = consumer.poll(WAIT_S)
        assert message is not None and message.error() is None and message.value() == b"hello"
    finally:
        consumer.close()


def failure_of(config: dict[str, Any]) -> int:
    """The error that a client of librdkafka reports when it cannot connect."""
    errors: list[Any] = []
    client = AdminClient({**config, "error_cb": errors.append, "reconnect.backoff.ms": 50})
    patience = Patience(WAIT_S)
    while not patience.ended:
        client.poll(0.1)
        found = [e.code() for e in errors if e.code() != KafkaError._ALL_BROKERS_DOWN]
        if found:
            return int(found[0])
    raise AssertionError("no error was reported")


# --- librdkafka --------------------------------------------------------------------------------------------


@promise("S1")
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(secured: Cluster, listener: str, mechanism: str) -> None:
    """Each mechanism, with and without TLS; a wrong password is refused."""
    roundtrip(secured.librdkafka(listener, sasl_mechanism=mechanism))
    wrong = secured.librdkafka(listener, sasl_mechanism=mechanism, sasl_password="wrong")
    assert failure_of(wrong) == KafkaError._AUTHENTICATION


@promise("S1")
def test_librdkafka_with_a_token(secured: Cluster) -> None:
    """OAUTHBEARER; a token for another audience is refused."""

    def tokens(audience: str) -> Callable[[str], tuple[str, float]]:
        def give(_: str) -> tuple[str, float]:
            return token_for(audience), time.time() + TOKEN_S

        return give

    base = secured.librdkafka("SASL_SSL", sasl_mechanism="OAUTHBEARER")
    config = {k: v for k, v in base.items() if k not in ("sasl.username", "sasl.password")}
    admin = AdminClient({**config, "oauth_cb": tokens("headwater")})
    admin.poll(1)
    assert admin.list_topics(timeout=WAIT_S).brokers
    assert failure_of({**config, "oauth_cb": tokens("others")}) == KafkaError._AUTHENTICATION


@promise("S1")
def test_mutual_tls(secured: Cluster) -> None:
    """A certificate's subject is who it is; without one, or with a stranger's, there is no connection."""

    def certificate(name: str) -> dict[str, Any]:
        return secured.librdkafka(
            "SSL",
            ssl_certificate_location=str(secured.directory / f"{name}.pem"),
            ssl_key_location=str(secured.directory / f"{name}.key"),
        )

    roundtrip(certificate("robot"))
    for config in (certificate("stranger"), secured.librdkafka("SSL")):
        with pytest.raises(KafkaException) as error:
            AdminClient(config).list_topics(timeout=5)
        assert error.value.args[0].code() == KafkaError._TRANSPORT


@promise("S1", "K3", "K4")
def test_large_records_over_tls(secured: Cluster) -> None:
    """More at once than any buffer on the way holds, in both directions."""
    config, topic, count = secured.librdkafka("SASL_SSL"), new_topic(), 40
    values = [bytes([i]) * 900_000 for i in range(count)]
    failures: list[Any] = []
    producer = Producer({**config, "linger.ms": 0, "message.max.bytes": 1_000_000})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0 and failures == [None] * count
    consumer = LibrdkafkaConsumer({**config, "group.id": "none", "enable.auto.commit": False,
                                   "fetch.message.max.bytes": 20_000_000})  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in consumer.consume(count, WAIT_S)] == values
    finally:
        consumer.close()


@promise("S2")
def test_rules_and_users_by_librdkafka(secured: Cluster) -> None:
    """A user is made, allowed, forbidden and removed by Kafka's own API, and each step takes effect."""
    admin = AdminClient(secured.librdkafka("SASL_PLAINTEXT"))
    topic, user = new_topic(), f"user-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, scram, b"secret")])[user].result(WAIT_S)
    described = admin.describe_user_scram_credentials([user])[user].result(WAIT_S)
    assert [(i.mechanism, i.iterations) for i in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    config = secured.librdkafka(
        "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username=user, sasl_password="secret"
    )

    def outcome() -> Any:
        found: list[Any] = []
        producer = Producer({**config, "message.timeout.ms": 15_000})
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _: found.append(error))
            producer.flush(WAIT_S)
        except KafkaException as error:
            return error.args[0].code()
        return found[0].code() if found[0] is not None else None

    def binding(operation: AclOperation, permission: AclPermissionType) -> AclBinding:
        return AclBinding(ResourceType.TOPIC, topic[:-1], ResourcePatternType.PREFIXED, f"User:{user}", "*", operation,
                          permission)  # fmt: skip

    refused = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._MSG_TIMED_OUT)
    assert outcome() in refused
    allow, deny = [binding(AclOperation.WRITE, p) for p in (AclPermissionType.ALLOW, AclPermissionType.DENY)]
    for future in admin.create_acls([allow]).values():
        future.result(WAIT_S)
    _until(lambda: outcome() is None)
    for future in admin.create_acls([deny]).values():
        future.result(WAIT_S)
    _until(lambda: outcome() in refused)
    everything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None,
                                  AclOperation.ANY, AclPermissionType.ANY)  # fmt: skip
    assert len(admin.describe_acls(everything).result(WAIT_S)) == 2
    [gone] = admin.delete_acls([everything]).values()
    assert len(gone.result(WAIT_S)) == 2
    admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)]
    )[user].result(WAIT_S)  # fmt: skip
    assert failure_of(config) == KafkaError._AUTHENTICATION


@promise("K9", "S2")
def test_a_regular_expression_matches_what_one_may_describe(secured: Cluster) -> None:
    """A KIP-848 consumer of librdkafka gets no topic that it may not describe, alone or beside a super user."""
    admin = AdminClient(secured.librdkafka("SASL_PLAINTEXT"))
    prefix = f"re-{uuid.uuid4().hex[:8]}"
    seen, hidden = f"{prefix}-seen", f"{prefix}-hidden"
    for future in admin.create_topics([NewTopic(seen, 2, 1), NewTopic(hidden, 2, 1)]).values():
        future.result(WAIT_S)

    def allow(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        rule = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        admin.create_acls([rule])[rule].result(WAIT_S)
        return rule

    allow(ResourceType.GROUP, prefix, AclOperation.READ)
    allow(ResourceType.TOPIC, seen, AclOperation.READ)
    ours = {"group.id": prefix, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    as_alice = {"sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}
    alice = LibrdkafkaConsumer({**secured.librdkafka("SASL_PLAINTEXT"), **as_alice, **ours})
    boss = LibrdkafkaConsumer({**secured.librdkafka("SASL_PLAINTEXT"), **ours})
    try:
        for consumer in (alice, boss):
            consumer.subscribe([f"^{prefix}-.*"])

        def owned() -> tuple[set[str], set[str], int]:
            for consumer in (alice, boss):
                consumer.poll(0.05)
            parts = [{(p.topic, p.partition) for p in consumer.assignment()} for consumer in (alice, boss)]
            return {t for t, _ in parts[0]}, {t for t, _ in parts[1]}, len(parts[0] | parts[1])

        def balanced() -> bool:
            of_alice, of_boss, count = owned()
            assert hidden not in of_alice
            return count == 4 and of_alice == {seen} and hidden in of_boss

        _until(balanced)
        boss.close()
        _until(lambda: {(p.topic, p.partition) for p in _polled(alice)} == {(seen, 0), (seen, 1)})
        rule = allow(ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
        _until(lambda: {p.topic for p in _polled(alice)} == {seen, hidden})
        [gone] = admin.delete_acls([AclBindingFilter(rule.restype, rule.name, rule.resource_pattern_type,
                                                     rule.principal, rule.host, rule.operation,
                                                     rule.permission_type)]).values()  # fmt: skip
        assert len(gone.result(WAIT_S)) == 1
        _until(lambda: {p.topic for p in _polled(alice)} == {seen})
    finally:
        for consumer in (alice, boss):
            with contextlib.suppress(RuntimeError):  # it is closed already
                consumer.close()


def _polled(consumer: LibrdkafkaConsumer) -> list[TopicPartition]:
    """What a consumer has to read, after it was given a moment."""
    consumer.poll(0.05)
    return list(consumer.assignment())


def _until(condition: Callable[[], bool]) -> None:
    """Rules reach the other broker a moment later than the one that took them."""
    patience = Patience(WAIT_S)
    while not condition():
        assert not patience.ended


# --- other clients ------------------------------------------------------------------------------------------


@promise("S1")
def test_aiokafka_with_a_token(secured: Cluster) -> None:
    """OAUTHBEARER."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return token_for("headwater")

    async def main() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=secured.addresses["SASL_PLAINTEXT"],
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        ) as producer:
            assert (await producer.send_and_wait(new_topic(), b"hello")).offset == 0

    asyncio.run(main())


@promise("S1")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(secured: Cluster, mechanism: str) -> None:
    """Over TLS."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.helpers import create_ssl_context

    topic = new_topic()

    async def main() -> None:
        common = {
            "bootstrap_servers": secured.addresses["SASL_SSL"],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "admin",
            "sasl_plain_password": PASSWORDS["admin"],
            "ssl_context": create_ssl_context(cafile=str(secured.directory / "issuer.pem")),
        }
        async with AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait(topic, b"hello")
        async with AIOKafkaConsumer(**common, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            async with asyncio.timeout(WAIT_S):
                assert (await consumer.getone()).value == b"hello"

    asyncio.run(main())


@promise("S1")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: Cluster, mechanism: str) -> None:
    """Without TLS."""
    with warnings.catch_warnings():
        # It reads its schemas by a function that Python 3.11 deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=secured.addresses["SASL_PLAINTEXT"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORDS["admin"],
    )
    try:
        assert producer.send(new_topic(), b"hello").get(timeout=WAIT_S).offset == 0
    finally:
        producer.close()


# --- Kafka's own tools --------------------------------------------------------------------------------------


def token_file(secured: Cluster) -> Path:
    """A file with a token that is good now."""
    file = secured.directory / "token.jwt"
    file.write_text(token_for("headwater"))
    return file


@pytest.fixture(scope="module")
def tools(secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    allowed, token = "-Dorg.apache.kafka.sasl.oauthbearer.allowed", token_file(secured)
    options = (f"{allowed}.urls=file://{token}", f"{allowed}.files={token}")
    with KafkaTools(tmp_path_factory.mktemp("tools"), *options) as running:
        yield running


def java(
    tools: KafkaTools,
    secured: Cluster,
    name: str,
    *arguments: str,
    mechanism: str = "SCRAM-SHA-512",
    user: str = "admin",
) -> str:
    """Run one of Kafka's tools; what it said."""
    token = token_file(secured)
    options = {
        "PLAIN": f'plain.PlainLoginModule required username="{user}" password="{PASSWORDS[user]}";',
        "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required;\nsasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}",
    }
    scram = f'scram.ScramLoginModule required username="{user}" password="{PASSWORDS[user]}";'
    properties = secured.directory / f"{uuid.uuid4().hex}.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{options.get(mechanism, scram)}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.directory}/issuer.pem\n"
    )
    more = ("--command-config", str(properties), "--bootstrap-server", secured.addresses["SASL_SSL"])
    done = tools.run(name, *arguments, *more)
    return done.out + done.error


@promise("S1")
@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_java_logs_in(tools: KafkaTools, secured: Cluster, mechanism: str) -> None:
    """The Java client, over TLS."""
    topic = new_topic()
    said = java(tools, secured, "TopicCommand", "--create", "--topic", topic, mechanism=mechanism)
    assert f"Created topic {topic}" in said, said


@promise("S2")
def test_java_tools_for_rules_and_users(tools: KafkaTools, secured: Cluster) -> None:
    """kafka-acls and kafka-configs, as operators know them."""
    topic = new_topic()
    assert "Created" in java(tools, secured, "TopicCommand", "--create", "--topic", topic)
    assert topic not in java(tools, secured, "TopicCommand", "--list", user="alice")
    rule = ("--allow-principal", "User:alice", "--operation", "Describe", "--topic", topic)
    said = java_acls(tools, secured, "--add", *rule)
    assert "principal=User:alice" in said, said
    assert topic in java(tools, secured, "TopicCommand", "--list", user="alice")
    assert "operation=DESCRIBE" in java_acls(tools, secured, "--list", "--topic", topic)
    change = ("--alter", "--entity-type", "users", "--entity-name", "dora", "--add-config")
    said = java(
        tools, secured, "kafka.admin.ConfigCommand", *change, "SCRAM-SHA-512=[iterations=4096,password=explorer]"
    )
    assert "Completed updating config for user dora" in said, said
    dora = secured.librdkafka("SASL_SSL", sasl_username="dora", sasl_password="explorer")
    assert AdminClient(dora).list_topics(timeout=WAIT_S).brokers


def java_acls(tools: KafkaTools, secured: Cluster, *arguments: str) -> str:
    """`kafka-acls`."""
    said = java(tools, secured, "AclCommand", *arguments)
    if "ClassNotFound" in said:
        unavailable("kafka-acls", "the Kafka libraries in .tools lack it")
    return said


# --- renewal ------------------------------------------------------------------------------------------------


def _renewing(test: Callable[[InProcess], Any]) -> None:
    """Run a client against a broker in this process whose log-ins hold for a second."""
    listener = ListenerSecurity(mechanisms="SCRAM-SHA-512")
    security = Security(session_ms=1000, listeners={"SASL_PLAINTEXT": listener})

    async def main() -> None:
        async with running(Settings(objects="memory://", security=security), "SASL_PLAINTEXT") as broker:
            await asyncio.to_thread(test, broker)

    asyncio.run(main())


@promise("S1")
def test_librdkafka_renews_its_login(tmp_path: Path) -> None:
    """KIP-368: more log-ins than connections, and not one failed delivery."""

    def test(broker: InProcess) -> None:
        failures: list[Any] = []
        config = {"bootstrap.servers": broker.address("SASL_PLAINTEXT"), "security.protocol": "SASL_PLAINTEXT",
                  "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bob",
                  "sasl.password": USERS["bob"]}  # fmt: skip
        producer = Producer(config)
        stats, logins = broker.node.broker.stats, broker.node.broker.logins
        patience = Patience(WAIT_S)
        while logins.granted < stats.connections_total + 3:
            producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error))
            assert producer.flush(WAIT_S) == 0
            assert not patience.ended
        assert set(failures) == {None} and logins.refused == 0

    _renewing(test)


@promise("S1")
def test_java_renews_its_login(tmp_path: Path) -> None:
    """KIP-368."""
    program = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
    tool("kafka/libs")

    def test(broker: InProcess) -> None:
        properties = tmp_path / "client.properties"
        properties.write_text(
            f"bootstrap.servers={broker.address('SASL_PLAINTEXT')}\nsecurity.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="alice" password="{USERS["alice"]}";\n'
        )
        command = [
            program,
            *OF_KAFKA,
            "-Xmx256m",
            "-cp",
            f"{TOOLS / 'kafka/libs'}/*",
            "org.apache.kafka.tools.ProducerPerformance",
        ]
        command += ["--topic", "t", "--num-records", "100000", "--record-size", "10", "--throughput", "80"]
        stats, logins = broker.node.broker.stats, broker.node.broker.logins
        with subprocess.Popen(
            [*command, "--producer.config", str(properties)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as client:
            try:
                eventually(lambda: logins.granted > stats.connections_total, "a log-in is renewed", WAIT_S)
                written = stats.produced_records
                eventually(lambda: stats.produced_records > written, "the client goes on writing", WAIT_S)
            finally:
                client.terminate()
                said, _ = client.communicate()
        assert "Exception" not in said, said
        assert logins.refused == 0

    _renewing(test)


# --- the cluster itself -------------------------------------------------------------------------------------


@promise("S1")
def test_a_new_certificate_without_a_restart(secured: Cluster) -> None:
    """Both brokers show it; a connection that is open goes on."""
    import ssl

    host, port = secured.addresses["SASL_SSL"].split(":")
    producer = Producer(secured.librdkafka("SASL_SSL"))
    topic = new_topic()
    assert producer.list_topics(timeout=WAIT_S).brokers
    issuer_files = (secured.directory / "issuer.pem", secured.directory / "issuer.key")
    before = ssl.get_server_certificate((host, int(port)))
    fresh = _issue_again(secured.directory, *issuer_files)
    for suffix in ("key", "pem"):
        shutil.move(secured.directory / f"{fresh}.{suffix}", secured.directory / f"server.{suffix}")
    for broker in range(2):
        _until(lambda port=int(port) + broker: ssl.get_server_certificate((host, port)) != before)  # type: ignore[misc]
    failures: list[Any] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0 and failures == [None]
    roundtrip(secured.librdkafka("SASL_SSL"))


def _issue_again(directory: Path, certificate: Path, key: Path) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from tests.support.certificates import Pair

    signer = load_pem_private_key(key.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = Pair(certificate, key, signer, x509.load_pem_x509_certificate(certificate.read_bytes()))
    issue(directory, "server-anew", issuer, "CN=server-anew")
    return "server-anew"


@promise("S3")
def test_no_secret_is_in_the_log(secured: Cluster) -> None:
    """Whatever was tried."""
    assert failure_of(secured.librdkafka("SASL_SSL", sasl_password="a wrong secret")) == KafkaError._AUTHENTICATION
    log = secured.log()
    assert re.search("a log-in failed", log)
    assert not [word for word in (*PASSWORDS.values(), "a wrong secret", "PRIVATE KEY") if word in log]
