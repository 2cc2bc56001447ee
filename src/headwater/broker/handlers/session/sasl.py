"""SaslHandshake, version 1, and SaslAuthenticate, versions 0 to 2: authentication of a connection."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import code_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.errors import NotAuthenticated
from headwater.security.logins import SASL_AUTHENTICATE, SASL_HANDSHAKE


@api(SASL_HANDSHAKE, 1, 1)
def sasl_handshake(broker: Broker, request: Request) -> Values:
    """Agree on a mechanism. On a listener without SASL there is none."""
    login = request.connection.login
    if login is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    if not login.shake_hands(request.body.mechanism):
        request.connection.end()
        return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": login.mechanisms}
    return {"error_code": ErrorCode.none, "mechanisms": login.mechanisms}


@api(SASL_AUTHENTICATE, 0, 2)
async def sasl_authenticate(broker: Broker, request: Request) -> Values:
    """One message of the mechanism. If the log-in fails, the connection ends after the answer."""
    login = request.connection.login
    if login is None or not login.shaking:
        if login is not None:
            request.connection.end()
        return {
            "error_code": ErrorCode.illegal_sasl_state,
            "error_message": "SaslAuthenticate must follow a SaslHandshake on a listener with SASL",
            "auth_bytes": b"",
        }
    try:
        message, lifetime = await login.step(bytes(request.body.auth_bytes))
    except NotAuthenticated as error:
        request.connection.end()
        return {
            "error_code": code_of(error),
            "error_message": str(error),
            "auth_bytes": b"",
        }
    if login.principal is not None:
        request.connection.let_in(login.principal)
    return {"error_code": ErrorCode.none, "auth_bytes": message, "session_lifetime": lifetime}
