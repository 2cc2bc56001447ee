"""Appends records of the REST Proxy's clients: each counts for itself, and gets a receipt or an error.

Records that came together are appended as one unit, which is fast. If one of them is refused for its content, the unit
is refused as a whole; then its halves are appended, and so on, until every record has an answer of its own. The order
of the records is kept.
"""

from __future__ import annotations

from headwater.errors import HeadwaterError
from headwater.gateway.problems import NOT_ALLOWED, NOT_FOUND, Refusal, refusal_of
from headwater.gateway.records.appending import Appending
from headwater.gateway.records.bodies import Wish
from headwater.gateway.services import Call
from headwater.gateway.v3.errors import Told, kafka_errors, told, told_of
from headwater.gateway.v3.record_forms import Form, Receipt, no_partition, receipt_of
from headwater.gateway.v3.schemas import DataSchemas
from headwater.state.cluster.access import Operation

_OF_THE_REQUEST = (NOT_ALLOWED, NOT_FOUND)
"""Refusals that do not depend on the content of a record."""
_FIRST = "records[0]: "


class Producing:
    """Appends records to one topic for one caller."""

    def __init__(self, call: Call, cluster_id: str, topic_name: str) -> None:
        self._call = call
        self._cluster_id = cluster_id
        self._topic_name = topic_name

    def __repr__(self) -> str:
        return f"<Producing to {self._topic_name!r}>"

    async def check(self) -> None:
        """Raise unless the caller may append to the topic now. From now on the bytes of the body count."""
        await self._appending()
        self._call.usage.appends()

    async def append(self, forms: list[Form]) -> list[Receipt | Told]:
        """Append records. The answers are in the same order."""
        try:
            appending, schemas = await self._appending()
            made = await schemas.encoded(forms)
        except HeadwaterError as error:
            return [told_of(error)] * len(forms)
        missing = told(no_partition())
        checked = [
            missing if isinstance(form, Form) and (form.entry.partition or 0) >= appending.partitions else form
            for form in made
        ]
        good = [form for form in checked if isinstance(form, Form)]
        answers = iter(await self._divided(appending, good) if good else [])
        return [next(answers) if isinstance(form, Form) else form for form in checked]

    async def _appending(self) -> tuple[Appending, DataSchemas]:
        """The way to append. The rules, the topic and its configs may have changed since the last time."""
        with kafka_errors():
            topic = await self._call.topic(self._topic_name, Operation.WRITE)
        appending = Appending(self._call.services, topic)
        await appending.check()
        return appending, DataSchemas(self._call, topic)

    async def _divided(self, appending: Appending, forms: list[Form]) -> list[Receipt | Told]:
        """See the module. The stack holds what is still to be appended, the next one last."""
        answers: list[Receipt | Told] = []
        left = [forms]
        while left:
            some = left.pop()
            try:
                answers += await self._together(appending, some)
            except HeadwaterError as error:
                if len(some) > 1 and _of_content(error):
                    middle = len(some) // 2
                    left += [some[middle:], some[:middle]]
                else:
                    answers += [_said(error)] * len(some)
        return answers

    async def _together(self, appending: Appending, forms: list[Form]) -> list[Receipt | Told]:
        """The receipts of records that are appended as one unit."""
        outcome = await appending.append(Wish([form.entry for form in forms]))
        times = {one.partition: one.timestamp for one in outcome.answer.partitions}
        places = outcome.answer.records or []
        return [
            receipt_of(form, self._cluster_id, self._topic_name, place.partition, place.offset, times[place.partition])
            for form, place in zip(forms, places, strict=True)
        ]


def _of_content(error: HeadwaterError) -> bool:
    """Whether an error is about the content of a record: without that record, the others may be appended."""
    kind = refusal_of(error).kind
    return kind.status < 500 and not kind.retry and kind not in _OF_THE_REQUEST


def _said(error: HeadwaterError) -> Told:
    refusal = refusal_of(error)
    detail = refusal.detail.removeprefix(_FIRST)
    return told(Refusal(refusal.kind, detail, more=refusal.more))
