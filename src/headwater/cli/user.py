"""`headwater user`: create, list and delete users that log in by SCRAM or PLAIN."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.common import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    fail,
    put_done,
    put_json,
    put_list,
    run,
)
from headwater.cli.connecting import connecting, open_client, password_of
from headwater.errors import ConfigError, HeadwaterError

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="Write to the ledger of this data directory instead; no broker has to run."
    ),
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Write to the ledger that these settings name instead.")
]
ScramOption = Annotated[
    list[str] | None,
    typer.Option("--scram", metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable; by default both."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to an app."""
    user = typer.Typer(help="Create, list and delete users.", no_args_is_help=True)
    for command in (add, list_, delete):
        user.command(command.__name__.rstrip("_"))(connecting(command))
    app.add_typer(user, name="user")


def add(
    name: NameArgument,
    new_password_file: Annotated[
        str | None,
        typer.Option(
            "--new-password-file",
            metavar="FILE",
            help="File with the new password; without it the command asks for it.",
        ),
    ] = None,
    scram: ScramOption = None,
    iterations: Annotated[
        int, typer.Option(min=4096, max=16384, help="Iterations of SCRAM; more make guessing slower.")
    ] = 4096,
    data: DataOption = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a user or change its password. Only keys derived from the password are stored."""
    try:
        mechanisms = _mechanisms(scram)
        password = password_of(new_password_file, f"New password of {name}", confirm=True)
    except HeadwaterError as error:
        fail(error)

    async def main() -> None:
        if data or config:
            await _add_offline(data, config, name, password, mechanisms, iterations)
            return
        async with open_client(bootstrap) as client:
            await client.put_user(name, password, mechanisms, iterations)

    run(main())
    put_done(output, "user", name, "stored")


async def _add_offline(
    data: str | None, config: str | None, name: str, password: str, mechanisms: list[str], iterations: int
) -> None:
    """Append to the ledger directly: the first user cannot be created through the brokers."""
    from headwater.app.session import ledger_session
    from headwater.clock import SystemChance
    from headwater.replica.users import put_user
    from headwater.settings.settings import load

    async with ledger_session(load(config, flags={"data": data}), member=True, create=True) as here:
        for mechanism in mechanisms:
            await put_user(here.cluster, SystemChance(), name, mechanism, password, iterations)


def list_(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = Output.TEXT) -> None:
    """List all users."""

    async def main() -> dict[str, dict[str, int]]:
        async with open_client(bootstrap) as client:
            return await client.describe_users()

    users = run(main())
    if output is Output.JSON:
        put_json([{"name": name, "mechanisms": mechanisms} for name, mechanisms in sorted(users.items())])
    else:
        rows = [(n, m, i) for n, mechanisms in sorted(users.items()) for m, i in sorted(mechanisms.items())]
        put_list(["NAME", "MECHANISM", "ITERATIONS"], rows, "users")


def delete(
    name: NameArgument,
    scram: ScramOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete a user, or only its keys for some mechanisms."""

    async def main() -> None:
        async with open_client(bootstrap) as client:
            known = (await client.describe_users()).get(name, {})
            chosen = _mechanisms(scram) if scram else sorted(known)
            if not chosen:
                raise ConfigError(f"there is no user {name!r}")
            await client.drop_user(name, chosen)

    run(main())
    put_done(output, "user", name, "deleted")


def _mechanisms(given: list[str] | None) -> list[str]:
    from headwater.wire.scram import MECHANISMS

    chosen = [mechanism.upper() for mechanism in given or MECHANISMS]
    for mechanism in chosen:
        if mechanism not in MECHANISMS:
            raise ConfigError(f"--scram {mechanism!r} must be one of {', '.join(MECHANISMS)}")
    return chosen
