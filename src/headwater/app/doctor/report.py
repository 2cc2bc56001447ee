"""The doctor's report: what was checked, and the problems."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

MAX_FINDINGS = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem."""

    check: str
    subject: str
    problem: str


@dataclass(slots=True)
class Report:
    """What was checked, and the problems."""

    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        self.checked[what] = self.checked.get(what, 0) + number

    def add(self, check: str, subject: object, problem: object) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(check, str(subject), str(problem)))

    def as_json(self) -> str:
        return json.dumps(
            {
                "healthy": not self.findings,
                "checked": self.checked,
                "findings": [asdict(f) for f in self.findings],
                "notes": self.notes,
            }
        )

    def as_text(self) -> str:
        lines = [f"checked {number} {what}" for what, number in sorted(self.checked.items())]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"PROBLEM [{f.check}] {f.subject}: {f.problem}" for f in self.findings]
        lines.append(f"{len(self.findings)} problems" if self.findings else "all is well")
        return "\n".join(lines)
