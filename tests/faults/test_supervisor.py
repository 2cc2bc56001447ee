"""`headwater up` and its brokers: leaving, dying, starting again, refusing to start, and the supervisor's pages."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.patience import eventually
from harness.ports import free_port, free_ports
from harness.process import Process, alive, headwater
from harness.serving import run
from tests.faults.raw import fresh
from tests.support.running import Running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


def refused(tmp_path: Path, *arguments: str) -> tuple[int, list[str]]:
    """Exit code and standard error, without the lines of the log, of an `up` that must not start."""
    ended = headwater("up", "--no-lake", "--no-gateway", "--data", str(tmp_path / "data"), *arguments)
    assert "ready" not in ended.stdout
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, [line for line in ended.stderr.splitlines() if not line.startswith("{")]


class TestLeaving:
    @pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
    def test_one_signal_drains_and_exits_with_0(self, server: Running, kind: signal.Signals) -> None:
        children = server.processes()
        assert server.process is not None and children
        server.process.send_signal(kind)
        assert server.process.wait(timeout=60) == 0
        assert not any(alive(child) for child in children)
        assert "a process ended" not in server.log.read_text()

    def test_what_is_under_way_is_answered_before_it_leaves(self, server: Running) -> None:
        """A long poll is under way, and a produce behind it."""
        server.create("t")

        async def story() -> int:
            async with server.client() as client:
                first = (await client.produce("t", 0, fresh([b"before"]))).base_offset
                assert server.process is not None
                server.process.send_signal(signal.SIGTERM)
                return first

        assert run(story()) == 0
        assert server.process is not None and server.process.wait(timeout=60) == 0
        server.start()
        assert server.read("t")[0] == [(0, b"before")]

    def test_a_second_signal_ends_it_at_once(self, server: Running) -> None:
        [child] = server.processes()
        assert server.process is not None
        child.send_signal(signal.SIGSTOP)  # so that the drain cannot end by itself
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(timeout=1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 130  # a drain that gave up ends with another code
        eventually(lambda: not alive(child), "the broker is gone")

    def test_children_die_with_a_killed_supervisor(self, server: Running) -> None:
        children = server.processes()
        assert server.process is not None and children
        server.process.kill()
        server.process.wait()
        eventually(lambda: not any(alive(child) for child in children), "the brokers are gone")


class TestKeepingAlive:
    def test_a_killed_broker_is_started_again(self, server: Running) -> None:
        server.create("t")

        async def produce(value: bytes) -> int:
            async with server.client() as client:
                return (await client.produce("t", 0, fresh([value]))).base_offset

        assert run(produce(b"one")) == 0
        killed = server.broker(1)
        killed.kill()
        eventually(lambda: server.broker(1).pid != killed.pid, "another broker runs")
        eventually(lambda: server.page("/readyz")[0] == 200, "it is ready")
        assert run(produce(b"two")) == 1
        assert endings(server) == [("broker-1", -signal.SIGKILL)]

    def test_a_broker_that_dies_again_and_again_is_started_each_time(self, server: Running) -> None:
        pids = set()
        for _ in range(3):
            process = server.broker(1)
            pids.add(process.pid)
            process.kill()
            eventually(lambda gone=process: server.broker(1).pid != gone.pid, "another broker runs")
        assert len(pids) == 3
        eventually(lambda: server.page("/readyz")[0] == 200, "it is ready")

    def test_a_broker_that_cannot_come_back_yet_takes_nobody_along(self, tmp_path: Path) -> None:
        """Somebody else has its port for a while: the other broker serves on, and this one is tried again."""
        with Running(tmp_path, brokers=2) as server:
            server.create("t")
            server.broker(2).kill()
            with eventually(lambda: listening_on(server.port + 1), "the port is free"):
                eventually(lambda: [e for e in endings(server) if e == ("broker-2", 1)], "it could not start")
                assert server.nodes(1) and server.process is not None and server.process.poll() is None
                assert json.loads(server.page("/health")[1])["components"]["broker-1"] == "healthy"
            eventually(lambda: server.page("/health")[1].count('"healthy"') == 3, "both are back")


def listening_on(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def endings(server: Running) -> list[tuple[str, int]]:
    """Which of its processes the supervisor saw end, and how."""
    return [(line["child"], line["exit_code"]) for line in server.log_lines() if line["message"] == "a process ended"]


class TestRefusing:
    def test_a_kafka_port_in_use(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, lines = refused(tmp_path, "--kafka", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{free_ports(1)}")
        assert code == 1
        assert [line for line in lines if f"cannot listen on 127.0.0.1:{port}" in line], lines

    def test_an_http_port_in_use(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, lines = refused(tmp_path, "--http", f"127.0.0.1:{port}", "--kafka", f"127.0.0.1:{free_ports(1)}")
        assert code == 1
        assert len(lines) == 1 and re.match(rf"headwater: cannot listen on 127\.0\.0\.1:{port}: ", lines[0]), lines

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ("nonsense = 1", "nonsense"),
            ("[wal]\ntypo_ms = 3", "typo_ms"),
            ("[limits]\nframe_bytes = 0", "frame_bytes"),
            ('kafka = "nowhere"', "nowhere"),
            ("brokers = 'three'", "brokers"),
            ("= broken", "settings.toml"),
        ],
    )
    def test_wrong_settings(self, tmp_path: Path, settings: str, named: str) -> None:
        file = tmp_path / "settings.toml"
        file.write_text(settings)
        code, lines = refused(tmp_path, "--config", str(file))
        assert code == 1
        assert len(lines) == 1 and lines[0].startswith("headwater: ") and named in lines[0], lines
        assert not (tmp_path / "data").exists()

    def test_a_data_directory_that_cannot_be_used(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("a file")
        code, lines = refused(tmp_path, "--http", f"127.0.0.1:{free_ports(1)}", "--kafka", f"127.0.0.1:{free_ports(1)}")
        assert code == 1
        assert len(lines) == 1 and "data directory" in lines[0], lines


class TestPages:
    def test_a_healthy_cluster(self, tmp_path: Path) -> None:
        with Running(tmp_path, brokers=2) as server:
            assert server.page("/healthz") == (200, '{"status":"alive"}')
            assert server.page("/readyz") == (200, '{"status":"healthy"}')
            status, body = server.page("/health")
            assert status == 200
            told = json.loads(body)
            assert told["status"] == "healthy"
            assert told["components"] == {"broker-1": "healthy", "broker-2": "healthy"}
            assert {entry["name"] for entry in told["duties"]["supervisor"]} == {"broker-1", "broker-2"}
            for name in ("broker-1", "broker-2"):
                duties = {entry["name"]: entry for entry in told["duties"][name]}
                assert duties.keys() >= {"follow-0", "append-1", "membership", "writer-1-cost", "housekeeping"}
                assert {entry["state"] for entry in duties.values()} == {"running"}
            status, body = server.page("/metrics")
            assert status == 200
            samples = [line for line in body.splitlines() if not line.startswith("#")]
            assert any('node="1"' in line for line in samples) and any('node="2"' in line for line in samples)
            names = [line.split()[2] for line in body.splitlines() if line.startswith("# TYPE")]
            assert len(names) == len(set(names))
            assert server.page("/nothing")[0] == 404

    def test_a_cluster_without_one_of_its_brokers(self, tmp_path: Path) -> None:
        with Running(tmp_path, brokers=2) as server:
            stopped = server.broker(2)
            stopped.send_signal(signal.SIGSTOP)
            try:
                status, body = server.page("/health")
                assert status == 200
                told = json.loads(body)
                assert told["status"] == "degraded"
                assert told["components"] == {"broker-1": "healthy", "broker-2": "unhealthy"}
                assert "broker-2" not in told["duties"]
                assert server.page("/healthz")[0] == 200
            finally:
                stopped.send_signal(signal.SIGCONT)
            eventually(lambda: json.loads(server.page("/health")[1])["status"] == "healthy", "both are back", 30)


def test_a_broker_alone_leaves_on_a_signal(tmp_path: Path) -> None:
    """`headwater broker` without a supervisor."""
    file = tmp_path / "broker.toml"
    address, pages = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    file.write_text(f'data = "{tmp_path}/data"\nkafka = "{address}"\nhttp = "{pages}"\n')
    broker = Process("broker", file, tmp_path / "stderr", {})
    broker.launch()
    try:
        broker.wait_until_ready()
        assert broker.said.read_text().startswith("ready node=1 ")
        assert psutil.Process(broker.pid).children() == []
        assert broker.stop() == 0
    finally:
        broker.kill()
