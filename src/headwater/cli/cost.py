"""`headwater cost`: what a workload costs in a cloud, compared with replicated Kafka."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli.common import Output, OutputOption, flush, put_json, put_table
from headwater.errors import BadInput
from headwater.ops.cost import Bill, Prices, Requests, Workload, bills

DEFAULT, PRICES = Workload(), Prices()
FIELDS = ("servers", "connectors", "zones", "storage", "requests", "total")


def register(app: typer.Typer) -> None:
    app.command(name="cost")(cost)


def cost(
    gb: Annotated[float, typer.Option(help="GB that clients write.")] = DEFAULT.gb,
    hours: Annotated[float, typer.Option(help="Hours in which clients write them.")] = DEFAULT.hours,
    log_gb: Annotated[float, typer.Option(help="GB of one replica of Kafka's log.")] = DEFAULT.log_gb,
    table_gb: Annotated[float, typer.Option(help="GB in the tables.")] = DEFAULT.table_gb,
    log_days: Annotated[float, typer.Option(help="How long Kafka keeps its log.")] = DEFAULT.log_days,
    table_days: Annotated[float, typer.Option(help="How long the tables are kept.")] = DEFAULT.table_days,
    brokers: Annotated[int, typer.Option(help="Servers of the log.")] = DEFAULT.brokers,
    compactors: Annotated[int, typer.Option(help="Servers that settle.")] = DEFAULT.compactors,
    connectors: Annotated[int, typer.Option(help="Servers of Kafka's connectors.")] = DEFAULT.connectors,
    puts: Annotated[float, typer.Option(help="PUTs and LISTs per GB; `make bench-cost` measures it.")] = 1_000.0,
    gets: Annotated[float, typer.Option(help="GETs per GB; `make bench-cost` measures it.")] = 1_000.0,
    server_hour: Annotated[float, typer.Option(help="Dollars per server and hour.")] = PRICES.server_hour,
    zone_gb: Annotated[float, typer.Option(help="Dollars per GB between zones.")] = PRICES.zone_gb,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare the cost of a workload with Kafka: requests, storage, servers, traffic between zones."""
    numbers = (gb, hours, log_gb, table_gb, log_days, table_days, puts, gets, server_hour, zone_gb)
    if min(*numbers, brokers, compactors, connectors) < 0:
        raise BadInput("numbers must not be negative")
    work = Workload(
        gb=gb,
        hours=hours,
        log_gb=log_gb,
        table_gb=table_gb,
        log_days=log_days,
        table_days=table_days,
        brokers=brokers,
        compactors=compactors,
        connectors=connectors,
    )
    show(bills(work, Requests(puts, gets), Prices(server_hour=server_hour, zone_gb=zone_gb)), output)


def show(found: list[Bill], output: Output) -> None:
    """Bills side by side."""
    if output is Output.JSON:
        put_json([{**asdict(bill), "total": bill.total} for bill in found])
        flush()
        return
    rows = [[name, *(f"${getattr(bill, name):.2f}" for bill in found)] for name in FIELDS]
    put_table(["dollars", *(bill.system for bill in found)], rows)
    flush()
