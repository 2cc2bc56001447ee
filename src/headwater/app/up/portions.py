"""What each process of `headwater up` gets of the settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headwater.app.peers import make_secret
from headwater.clock import SystemChance
from headwater.errors import MissingExtra
from headwater.extras import has
from headwater.lake.spark.java import find_java
from headwater.settings.settings import HttpSecurity, Settings, parse_address, parse_listeners
from headwater.settings.zones import parse_zones


def wanted_extras(settings: Settings) -> list[str]:
    """The extras that the settings ask for."""
    gateway = settings.gateway.enabled
    wanted = {
        "lake": settings.lake.enabled,
        "sql": gateway and settings.sql.enabled,
        "registry": gateway,
        "flight": gateway and bool(settings.gateway.flight),
    }
    return [extra for extra, needed in wanted.items() if needed]


def lacks_java(settings: Settings) -> bool:
    """Whether settling will find no Java. This asks the machine's Java for its version, which takes a moment."""
    if not settings.lake.enabled or settings.lake.spark.remote or not has("lake"):
        return False
    try:
        find_java()
    except MissingExtra:
        return True
    return False


def inside(settings: Settings) -> Settings:
    """The settings of a child: its pages are on loopback, and TLS ends at the supervisor."""
    http = HttpSecurity(authentication=settings.security.http.authentication)
    return msgspec.structs.replace(
        settings,
        http="127.0.0.1:0",
        data=str(Path(settings.data).absolute()),
        security=msgspec.structs.replace(settings.security, http=http),
    )


def gateway_settings(settings: Settings) -> Settings:
    """The settings of a gateway: its pages are on loopback, without TLS; its API has the TLS of the settings."""
    data = str(Path(settings.data).absolute())
    return msgspec.structs.replace(settings, http="127.0.0.1:0", data=data, zones="", zone=_zone(settings))


def link_settings(settings: Settings) -> Settings:
    """The settings of a link process: its pages are on loopback, without TLS."""
    return msgspec.structs.replace(inside(settings), zones="", zone=_zone(settings))


def _zone(settings: Settings) -> str:
    """The zone of the first broker."""
    return (parse_zones(settings.zones) or [settings.zone])[0]


def sharing(settings: Settings, directory: Path) -> Settings:
    """Settings with which several brokers share reads on loopback, with a secret, unless `internal` is set."""
    if settings.internal or settings.brokers == 1:
        return settings
    secret = settings.internal_secret_file or make_secret(directory, SystemChance())
    return msgspec.structs.replace(settings, internal="127.0.0.1:0", internal_secret_file=secret)


def broker_settings(settings: Settings) -> list[Settings]:
    """The settings of each broker. Node ids and ports count up from the first; zones are assigned round robin."""
    found = []
    zones = parse_zones(settings.zones) or [settings.zone]
    for i in range(settings.brokers):
        listeners = ",".join(
            f"{name}={_counted(f'{shown(host)}:{port}', i)}"
            for name, (host, port) in parse_listeners(settings.kafka).items()
        )
        advertised = settings.advertise and ",".join(
            f"{name}={shown(host)}:{port + i}" for name, (host, port) in parse_listeners(settings.advertise).items()
        )
        found.append(
            msgspec.structs.replace(
                inside(settings),
                node=settings.node + i,
                zone=zones[i % len(zones)],
                zones="",
                internal=_counted(settings.internal, i) if settings.internal else "",
                kafka=listeners,
                advertise=advertised,
            )
        )
    return found


def _counted(address: str, i: int) -> str:
    """The address of the i-th broker. Port 0 stays: the system chooses a port for each broker."""
    host, port = parse_address(address)
    return f"{shown(host)}:{port + i if port else 0}"


def shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
