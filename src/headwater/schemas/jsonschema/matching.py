"""The greatest number of pairs that can be formed, if each thing may be in one pair only."""

from __future__ import annotations


def matched(fits: list[list[int]], others: int) -> int:
    """The size of a maximum matching. `fits` has, for each thing of one side, those of the other side that it fits."""
    partner: list[int | None] = [None] * others
    pairs = 0
    for start in range(len(fits)):
        # Breadth first: from things whose partners may have to change to those that are free.
        came_from: dict[int, int] = {}
        todo, free = [start], None
        while todo and free is None:
            one = todo.pop(0)
            for other in fits[one]:
                if other in came_from:
                    continue
                came_from[other] = one
                taken = partner[other]
                if taken is None:
                    free = other
                    break
                todo.append(taken)
        while free is not None:
            one = came_from[free]
            before = next((other for other, who in enumerate(partner) if who == one), None)
            partner[free] = one
            if before is not None:
                partner[before] = None
            free = before
            if one == start:
                pairs += 1
                free = None
    return pairs
