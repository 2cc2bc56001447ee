"""Types of parameters that several calls have. Limits and cursors of listings are in `headwater.gateway.paging`."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

TopicName = Annotated[str, PathParameter(description="The name of the topic.")]
ProblemName = Annotated[str, PathParameter(description="The last part of the `type` of a problem document.")]
ValidateOnly = Annotated[bool, QueryParameter(description="Only check the request, and change nothing.")]
