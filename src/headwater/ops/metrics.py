"""Metrics in Prometheus's text format, made from plain counts when they are requested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its samples: label values and a number each."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def render(metrics: Iterable[Metric], **labels: str) -> str:
    """Metrics as text. All samples get the given labels."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for own, value in metric.samples:
            pairs = ",".join(f'{k}="{_escaped(v)}"' for k, v in {**labels, **own}.items())
            lines.append(f"{metric.name}{{{pairs}}} {value:.17g}" if pairs else f"{metric.name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def merge(texts: Iterable[str]) -> str:
    """The metrics of several processes as one text, with the samples of each metric together, as the format demands."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, [line])
            elif line.startswith("# TYPE "):
                if len(heads[name]) == 1:
                    heads[name].append(line)
            elif line:
                samples.setdefault(name, []).append(line)
    return "\n".join(line for name in heads for line in (*heads[name], *samples.get(name, ()))) + "\n"
