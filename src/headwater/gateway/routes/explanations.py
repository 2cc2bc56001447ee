"""The pages that explain problems: the `type` of a problem document leads to one."""

from __future__ import annotations

from litestar import MediaType, Response, get

from headwater.gateway.parameters import ProblemName
from headwater.gateway.problems import KINDS, NOT_FOUND, PATH, Refusal, explained


@get(f"{PATH}{{name:str}}", operation_id="explainProblem", tags=["problems"], media_type=MediaType.HTML)
async def explain_problem(name: ProblemName) -> Response[str]:
    """What a kind of problem means and what to do about it, as a page for people. It needs no authentication."""
    kind = KINDS.get(name)
    if kind is None:
        raise Refusal(NOT_FOUND, "there is no such kind of problem")
    return Response(explained(kind), media_type=MediaType.HTML)


ROUTES = (explain_problem,)
