"""Changes of configs: what a request asks for becomes what is stored, checked one by one and all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.configs import topics as topic_configs
from headwater.configs.keys import ConfigKey, Kind, elements
from headwater.errors import ConfigError

SET, DELETE, APPEND, SUBTRACT = range(4)
"""What an edit does to a config, in Kafka's numbers."""
WORDS = {APPEND: "APPEND to", SUBTRACT: "SUBTRACT from"}


def _nothing(configs: Mapping[str, str]) -> None:
    """The check of configs that do not depend on each other: none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for the configs of one kind of resource."""

    keys: Mapping[str, ConfigKey]
    check: Callable[[str, str], str]
    check_together: Callable[[Mapping[str, str]], None] = _nothing


class Edit(NamedTuple):
    """One edit of a config. DELETE has no value."""

    name: str
    operation: int
    value: str


@dataclass(frozen=True, slots=True)
class Change:
    """What is stored and removed."""

    put: dict[str, str] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)

    def after(self, now: Mapping[str, str]) -> dict[str, str]:
        """The configs after the change."""
        return {**{name: value for name, value in now.items() if name not in self.remove}, **self.put}


def rules_of_topics(common: Mapping[str, str]) -> Rules:
    """The rules for configs of topics. `common` are the configs that are set for all brokers."""
    return Rules(
        topic_configs.KEYS, topic_configs.checked, lambda configs: topic_configs.check_together(configs, common)
    )


def change_of(rules: Rules, now: Mapping[str, str], edits: Iterable[Edit], *, replace: bool = False) -> Change:
    """The change that edits make to the current configs. With `replace`, configs without an edit are removed."""
    change = Change()
    for edit in edits:
        if edit.operation == DELETE:
            change.remove.append(edit.name)
        else:
            wanted = edit.value if edit.operation == SET else _listed(rules, now, edit)
            change.put[edit.name] = rules.check(edit.name, wanted)
    if replace:
        change.remove.extend(name for name in now if name not in change.put)
    rules.check_together(change.after(now))
    return change


def _listed(rules: Rules, now: Mapping[str, str], edit: Edit) -> str:
    """A list with elements added or removed."""
    key = rules.keys.get(edit.name)
    if key is None or key.kind is not Kind.LIST:
        raise ConfigError(f"Can't {WORDS[edit.operation]} key {edit.name} because its type is not LIST.")
    before, asked = elements(now.get(edit.name, key.default)), elements(edit.value)
    if edit.operation == APPEND:
        return ",".join([*before, *(value for value in asked if value not in before)])
    return ",".join(value for value in before if value not in asked)
