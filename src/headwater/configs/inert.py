"""Broker configs of Apache Kafka 4.3 that mean nothing here: names, types, ranges, defaults.

Tools and scripts for Kafka set them. They are checked by their type, kept and shown, and their description says that
they have no effect. Those with secrets (`ssl.key.password` and the like) are left out: what has no use is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from headwater.configs.keys import INT_MAX, LONG_MAX, ConfigKey, Kind, anything, boolean, decimal, number, one_of

_TABLE = """\
add.partitions.to.txn.retry.backoff.max.ms INT static 0.. 100
add.partitions.to.txn.retry.backoff.ms INT static 1.. 20
alter.config.policy.class.name CLASS static -
alter.log.dirs.replication.quota.window.num INT static 1.. 11
alter.log.dirs.replication.quota.window.size.seconds INT static 1.. 1
authorizer.class.name STRING static -
auto.leader.rebalance.enable BOOLEAN static - true
background.threads INT dynamic 1.. 10
broker.heartbeat.interval.ms INT static - 2000
broker.session.timeout.ms INT static - 9000
client.quota.callback.class CLASS static -
config.providers LIST dynamic -
connection.failed.authentication.delay.ms INT static 0.. 100
connections.max.reauth.ms LONG static - 0
controlled.shutdown.enable BOOLEAN static - true
controller.listener.names LIST static -
controller.quorum.append.linger.ms INT static 0.. 25
controller.quorum.auto.join.enable BOOLEAN static - false
controller.quorum.bootstrap.servers LIST static -
controller.quorum.election.backoff.max.ms INT static 0.. 1000
controller.quorum.election.timeout.ms INT static 0.. 1000
controller.quorum.fetch.max.bytes INT static 1.. 1048576
controller.quorum.fetch.snapshot.max.bytes INT static 1.. 1048576
controller.quorum.fetch.timeout.ms INT static 0.. 2000
controller.quorum.request.timeout.ms INT static 0.. 2000
controller.quorum.retry.backoff.ms INT static 0.. 20
controller.quorum.voters LIST static -
controller.quota.window.num INT static 1.. 11
controller.quota.window.size.seconds INT static 1.. 1
controller.socket.timeout.ms INT static - 30000
cordoned.log.dirs LIST dynamic -
create.topic.policy.class.name CLASS static -
delegation.token.expiry.check.interval.ms LONG static 1.. 3600000
delegation.token.expiry.time.ms LONG static 1.. 86400000
delegation.token.max.lifetime.ms LONG static 1.. 604800000
delete.records.purgatory.purge.interval.requests INT static - 1
early.start.listeners LIST static -
fetch.purgatory.purge.interval.requests INT static - 1000
follower.fetch.last.tiered.offset.enable BOOLEAN dynamic - false
group.consumer.assignors LIST static - uniform,range
group.consumer.max.assignment.interval.ms INT static 0.. 15000
group.consumer.max.heartbeat.interval.ms INT static 1.. 15000
group.consumer.max.session.timeout.ms INT static 1.. 60000
group.consumer.max.size INT static 1.. 2147483647
group.consumer.migration.policy STRING static - bidirectional
group.consumer.min.assignment.interval.ms INT static 0.. 0
group.consumer.min.heartbeat.interval.ms INT static 1.. 5000
group.consumer.min.session.timeout.ms INT static 1.. 45000
group.coordinator.append.linger.ms INT static -1.. -1
group.coordinator.background.threads INT static 1.. 2
group.coordinator.cached.buffer.max.bytes INT dynamic 524288.. 1048588
group.coordinator.rebalance.protocols LIST static consumer|classic|share|streams classic,consumer,streams
group.coordinator.threads INT static 1.. 4
group.initial.rebalance.delay.ms INT static - 3000
group.max.session.timeout.ms INT static - 1800000
group.max.size INT static 1.. 2147483647
group.min.session.timeout.ms INT static - 6000
group.share.assignors LIST static - simple
group.share.max.assignment.interval.ms INT static 0.. 15000
group.share.max.delivery.count.limit INT static 5..25 10
group.share.max.heartbeat.interval.ms INT static 1.. 15000
group.share.max.partition.max.record.locks INT static 2000..10000 4000
group.share.max.record.lock.duration.ms INT static 30000..3600000 60000
group.share.max.session.timeout.ms INT static 1.. 60000
group.share.max.share.sessions INT static 1.. 2000
group.share.max.size INT static 1..1000 200
group.share.min.assignment.interval.ms INT static 0.. 0
group.share.min.delivery.count.limit INT static 2..5 2
group.share.min.heartbeat.interval.ms INT static 1.. 5000
group.share.min.partition.max.record.locks INT static 100..2000 100
group.share.min.record.lock.duration.ms INT static 1000..30000 15000
group.share.min.session.timeout.ms INT static 1.. 45000
group.streams.max.assignment.interval.ms INT static 0.. 15000
group.streams.max.heartbeat.interval.ms INT static 1.. 15000
group.streams.max.session.timeout.ms INT static 1.. 60000
group.streams.max.size INT static 1.. 2147483647
group.streams.max.standby.replicas INT static 0.. 2
group.streams.min.assignment.interval.ms INT static 0.. 0
group.streams.min.heartbeat.interval.ms INT static 1.. 5000
group.streams.min.session.timeout.ms INT static 1.. 45000
initial.broker.registration.timeout.ms INT static - 60000
inter.broker.listener.name STRING static -
kafka.metrics.polling.interval.secs INT static 1.. 10
kafka.metrics.reporters LIST static -
leader.imbalance.check.interval.seconds LONG static 1.. 300
listener.security.protocol.map STRING dynamic - SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
log.cleaner.backoff.ms LONG dynamic 0.. 15000
log.cleaner.dedupe.buffer.size LONG dynamic - 134217728
log.cleaner.enable BOOLEAN static - true
log.cleaner.io.buffer.load.factor DOUBLE dynamic - 0.9
log.cleaner.io.buffer.size INT dynamic 0.. 524288
log.cleaner.io.max.bytes.per.second DOUBLE dynamic - 1.7976931348623157E308
log.cleaner.threads INT dynamic 0.. 1
log.dir LIST static - /tmp/kafka-logs
log.dir.failure.timeout.ms LONG static 1.. 30000
log.flush.offset.checkpoint.interval.ms INT static 0.. 60000
log.flush.scheduler.interval.ms LONG static - 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms INT static 0.. 60000
log.retention.check.interval.ms LONG static 1.. 300000
log.retention.hours INT static - 168
log.retention.minutes INT static -
log.roll.hours INT static 1.. 168
log.roll.jitter.hours INT static 0.. 0
max.connections.per.ip.overrides STRING dynamic -
max.request.partition.size.limit INT static 1.. 2000
metadata.log.dir STRING static -
metadata.log.max.record.bytes.between.snapshots LONG static 1.. 20971520
metadata.log.max.snapshot.interval.ms LONG static 0.. 3600000
metadata.log.segment.bytes INT static 8388608.. 1073741824
metadata.log.segment.ms LONG static - 604800000
metadata.max.idle.interval.ms INT static 0.. 500
metadata.max.retention.bytes LONG static - 104857600
metadata.max.retention.ms LONG static - 604800000
metric.reporters LIST dynamic - org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples INT static 1.. 2
metrics.recording.level STRING static - INFO
metrics.sample.window.ms LONG static 1.. 30000
num.io.threads INT dynamic 1.. 8
num.network.threads INT dynamic 1.. 3
num.recovery.threads.per.data.dir INT dynamic 1.. 2
num.replica.alter.log.dirs.threads INT static -
num.replica.fetchers INT dynamic 1.. 1
offset.metadata.max.bytes INT static - 4096
offsets.commit.timeout.ms INT static 1.. 5000
offsets.load.buffer.size INT static 1.. 5242880
offsets.retention.check.interval.ms LONG static 1.. 600000
offsets.retention.minutes INT static 1.. 10080
offsets.topic.compression.codec INT static - 0
offsets.topic.num.partitions INT static 1.. 50
offsets.topic.replication.factor SHORT static 1.. 3
offsets.topic.segment.bytes INT static 1.. 104857600
principal.builder.class CLASS dynamic - org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
producer.purgatory.purge.interval.requests INT static - 1000
queued.max.requests INT static 1.. 500
remote.fetch.max.wait.ms INT dynamic 1.. 500
remote.list.offsets.request.timeout.ms LONG dynamic 1.. 30000
remote.log.index.file.cache.total.size.bytes LONG dynamic 1.. 1073741824
remote.log.manager.copier.thread.pool.size INT dynamic 1.. 10
remote.log.manager.copy.max.bytes.per.second LONG dynamic 1.. 9223372036854775807
remote.log.manager.copy.quota.window.num INT static 1.. 11
remote.log.manager.copy.quota.window.size.seconds INT static 1.. 1
remote.log.manager.expiration.thread.pool.size INT dynamic 1.. 10
remote.log.manager.fetch.max.bytes.per.second LONG dynamic 1.. 9223372036854775807
remote.log.manager.fetch.quota.window.num INT static 1.. 11
remote.log.manager.fetch.quota.window.size.seconds INT static 1.. 1
remote.log.manager.follower.thread.pool.size INT dynamic 1.. 2
remote.log.manager.task.interval.ms LONG static 1.. 30000
remote.log.manager.thread.pool.size INT static 1.. 2
remote.log.metadata.custom.metadata.max.bytes INT static 0.. 128
remote.log.metadata.manager.class.name STRING static - org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING static -
remote.log.metadata.manager.impl.prefix STRING static - rlmm.config.
remote.log.metadata.manager.listener.name STRING static -
remote.log.reader.max.pending.tasks INT static 1.. 100
remote.log.reader.threads INT dynamic 1.. 10
remote.log.storage.manager.class.name STRING static -
remote.log.storage.manager.class.path STRING static -
remote.log.storage.manager.impl.prefix STRING static - rsm.config.
remote.log.storage.system.enable BOOLEAN static - false
replica.fetch.backoff.ms INT static 0.. 1000
replica.fetch.max.bytes INT static 0.. 1048576
replica.fetch.min.bytes INT static - 1
replica.fetch.response.max.bytes INT static 0.. 10485760
replica.fetch.wait.max.ms INT static - 500
replica.high.watermark.checkpoint.interval.ms LONG static - 5000
replica.lag.time.max.ms LONG static - 30000
replica.selector.class STRING static -
replica.socket.receive.buffer.bytes INT static - 65536
replica.socket.timeout.ms INT static - 30000
replication.quota.window.num INT static 1.. 11
replication.quota.window.size.seconds INT static 1.. 1
request.timeout.ms INT static - 30000
sasl.client.callback.handler.class CLASS static -
sasl.enabled.mechanisms LIST dynamic - GSSAPI
sasl.kerberos.kinit.cmd STRING dynamic - /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG dynamic - 60000
sasl.kerberos.principal.to.local.rules LIST dynamic - DEFAULT
sasl.kerberos.service.name STRING dynamic -
sasl.kerberos.ticket.renew.jitter DOUBLE dynamic - 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE dynamic - 0.8
sasl.login.callback.handler.class CLASS static -
sasl.login.class CLASS static -
sasl.login.connect.timeout.ms INT static -
sasl.login.read.timeout.ms INT static -
sasl.login.refresh.buffer.seconds SHORT dynamic - 300
sasl.login.refresh.min.period.seconds SHORT dynamic - 60
sasl.login.refresh.window.factor DOUBLE dynamic - 0.8
sasl.login.refresh.window.jitter DOUBLE dynamic - 0.05
sasl.login.retry.backoff.max.ms LONG static - 10000
sasl.login.retry.backoff.ms LONG static - 100
sasl.mechanism.controller.protocol STRING static - GSSAPI
sasl.mechanism.inter.broker.protocol STRING dynamic - GSSAPI
sasl.oauthbearer.assertion.algorithm STRING static - RS256
sasl.oauthbearer.assertion.claim.aud STRING static -
sasl.oauthbearer.assertion.claim.exp.seconds INT static 0..86400 300
sasl.oauthbearer.assertion.claim.iss STRING static -
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN static - false
sasl.oauthbearer.assertion.claim.nbf.seconds INT static 0..3600 60
sasl.oauthbearer.assertion.claim.sub STRING static -
sasl.oauthbearer.assertion.file STRING static -
sasl.oauthbearer.assertion.private.key.file STRING static -
sasl.oauthbearer.assertion.template.file STRING static -
sasl.oauthbearer.client.credentials.client.id STRING static -
sasl.oauthbearer.clock.skew.seconds INT static - 30
sasl.oauthbearer.expected.audience LIST static -
sasl.oauthbearer.expected.issuer STRING static -
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG static - 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG static - 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG static - 100
sasl.oauthbearer.jwks.endpoint.url STRING static -
sasl.oauthbearer.jwt.retriever.class CLASS static - org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS static - org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING static -
sasl.oauthbearer.scope.claim.name STRING static - scope
sasl.oauthbearer.sub.claim.name STRING static - sub
sasl.oauthbearer.token.endpoint.url STRING static -
sasl.server.callback.handler.class CLASS static -
sasl.server.max.receive.size INT static - 524288
security.inter.broker.protocol STRING static PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL PLAINTEXT
security.providers STRING static -
share.coordinator.append.linger.ms INT static -1.. -1
share.coordinator.cached.buffer.max.bytes INT dynamic 524288.. 1048588
share.coordinator.load.buffer.size INT static 1.. 5242880
share.coordinator.snapshot.update.records.per.snapshot INT static 0..500 500
share.coordinator.state.topic.compression.codec INT static - 0
share.coordinator.state.topic.min.isr SHORT static 1.. 2
share.coordinator.state.topic.num.partitions INT static 1.. 50
share.coordinator.state.topic.replication.factor SHORT static 1.. 3
share.coordinator.state.topic.segment.bytes INT static 1.. 104857600
share.coordinator.threads INT static 1.. 1
share.coordinator.write.timeout.ms INT static 1.. 5000
share.fetch.purgatory.purge.interval.requests INT static - 1000
socket.connection.setup.timeout.max.ms LONG static - 30000
socket.connection.setup.timeout.ms LONG static - 10000
socket.listen.backlog.size INT static 1.. 50
socket.receive.buffer.bytes INT static - 102400
socket.send.buffer.bytes INT static - 102400
ssl.allow.dn.changes BOOLEAN static - false
ssl.allow.san.changes BOOLEAN static - false
ssl.cipher.suites LIST dynamic -
ssl.client.auth STRING dynamic required|requested|none none
ssl.enabled.protocols LIST dynamic - TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm STRING dynamic - https
ssl.engine.factory.class CLASS dynamic -
ssl.keymanager.algorithm STRING dynamic - SunX509
ssl.keystore.location STRING dynamic -
ssl.keystore.type STRING dynamic - JKS
ssl.principal.mapping.rules STRING static - DEFAULT
ssl.protocol STRING dynamic - TLSv1.3
ssl.provider STRING dynamic -
ssl.secure.random.implementation STRING dynamic -
ssl.trustmanager.algorithm STRING dynamic - PKIX
ssl.truststore.location STRING dynamic -
ssl.truststore.type STRING dynamic - JKS
transaction.partition.verification.enable BOOLEAN dynamic - true
transaction.remove.expired.transaction.cleanup.interval.ms INT static 1.. 3600000
transaction.state.log.load.buffer.size INT static 1.. 5242880
transaction.state.log.min.isr INT static 1.. 2
transaction.state.log.num.partitions INT static 1.. 50
transaction.state.log.replication.factor SHORT static 1.. 3
transaction.state.log.segment.bytes INT static 1.. 104857600
"""  # noqa: E501
"""Name, type, whether it can be changed while brokers run, range (`LOW..HIGH`, `WORD|WORD` or `-`), default."""

_LIMITS: Mapping[Kind, int] = {Kind.SHORT: (1 << 15) - 1, Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}
_DOC = "Apache Kafka has it."


def _check(kind: Kind, allowed: str) -> Callable[[str], str]:
    if kind is Kind.BOOLEAN:
        return boolean
    low, _, high = allowed.partition("..")
    if kind is Kind.DOUBLE:
        return decimal(-math.inf if low == "-" else float(low), float(high or "inf"))
    if kind in _LIMITS:
        most = _LIMITS[kind]
        return number(int(low) if low != "-" else -most - 1, int(high) if high else most)
    return one_of(*allowed.split("|")) if "|" in allowed and kind is Kind.STRING else anything


def _read(line: str) -> tuple[ConfigKey, bool]:
    name, kind, changed, allowed, default = f"{line} ".split(" ", 4)
    of = Kind[kind]
    return ConfigKey(name, of, default.strip(), _check(of, allowed), _DOC, inert=True), changed == "dynamic"


_ROWS = [_read(line) for line in _TABLE.splitlines()]
DYNAMIC: Mapping[str, ConfigKey] = {key.name: key for key, dynamic in _ROWS if dynamic}
"""What Kafka can change while brokers run."""
STATIC: Mapping[str, ConfigKey] = {key.name: key for key, dynamic in _ROWS if not dynamic}
"""What is fixed when a broker starts."""
