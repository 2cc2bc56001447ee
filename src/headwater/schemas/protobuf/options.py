"""Options of descriptors as text, also those that files of the schema define."""

from __future__ import annotations

from typing import Any


class Options:
    """Prints options. `pool` has the descriptors of the schema, and with them the options that it defines."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._classes: dict[str, Any] = {}

    def of(self, kind: str, options: Any, without: tuple[str, ...] = ()) -> list[str]:
        """The options of an element, each as `name = value`, in the order of their names."""
        data = options.SerializeToString(deterministic=True)
        if not data:
            return []
        message = self._class(kind)()
        message.ParseFromString(data)
        printed: list[str] = []
        for field, value in message.ListFields():
            if field.name in without:
                continue
            name = f"({field.full_name})" if field.is_extension else field.name
            values = value if field.is_repeated else (value,)
            printed.extend(f"{name} = {self._value(field, one)}" for one in values)
        return sorted(printed)

    def edition(self, file: Any) -> str:
        """The edition of a file, as its text names it."""
        from google.protobuf import descriptor_pb2

        name: str = descriptor_pb2.Edition.Name(file.edition)
        return name.removeprefix("EDITION_")

    def _class(self, kind: str) -> Any:
        if kind not in self._classes:
            from google.protobuf import descriptor_pb2, message_factory

            try:
                own = self._pool.FindMessageTypeByName(f"google.protobuf.{kind}")
            except KeyError:
                self._classes[kind] = getattr(descriptor_pb2, kind)
            else:
                self._classes[kind] = message_factory.GetMessageClass(own)
        return self._classes[kind]

    def _value(self, field: Any, value: Any) -> str:
        from google.protobuf import text_format

        if field.message_type is not None:
            inner = text_format.MessageToString(value, as_one_line=True, descriptor_pool=self._pool)
            return f"{{ {inner} }}"
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return known.name if known is not None else str(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, bytes):
            return quoted(value)
        return str(value)


def quoted(text: str | bytes) -> str:
    """A string of a .proto text."""
    from google.protobuf import text_encoding

    return f'"{text_encoding.CEscape(text, as_utf8=isinstance(text, str))}"'
