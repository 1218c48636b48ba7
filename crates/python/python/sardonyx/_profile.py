"""How long the steps of runs took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: So many steps are shown; the slowest ones.
SHOWN = 20


class ProfiledStep(NamedTuple):
    """A step of a session: the name of its node, the operator, what computes it, and how long it takes in a run."""

    node: str
    op: str
    kernel: str
    #: In microseconds: the median over the runs. Of a step in a loop, all its iterations together.
    us: float


class Profile:
    """How long the steps of a session take: what ``Session.profile`` returns.

    Times are medians over the runs, in microseconds. A notebook shows it as tables, ``print`` as text.
    """

    def __init__(
        self,
        steps: Sequence[tuple[str, str, str]],
        runs: Sequence[tuple[int, int, Sequence[tuple[int, int, int]]]],
        threads: int,
    ) -> None:
        # Takes longer to import than most of this package.
        import statistics

        times: list[list[int]] = [[] for _ in steps]
        for _, _, events in runs:
            of_run = [0] * len(steps)
            for step, _, took in events:
                of_run[step] += took
            for all_runs, took in zip(times, of_run, strict=True):
                all_runs.append(took)
        #: How many runs were measured.
        self.runs = len(runs)
        #: How many threads a run uses.
        self.threads = threads
        #: How long a run takes: the median.
        self.run_us = float(statistics.median(took for _, took, _ in runs)) if runs else 0.0
        #: The steps, in the order of the session.
        self.steps = [
            ProfiledStep(*step, float(statistics.median(took)) if took else 0.0)
            for step, took in zip(steps, times, strict=True)
        ]

    def operators(self) -> dict[str, float]:
        """How long the steps of each operator take together, the slowest first."""
        sums: dict[str, float] = {}
        for step in self.steps:
            sums[step.op] = sums.get(step.op, 0.0) + step.us
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def slowest(self, count: int = SHOWN) -> list[ProfiledStep]:
        """So many steps, the slowest first."""
        return sorted(self.steps, key=lambda step: -step.us)[: max(count, 0)]

    def _repr_html_(self) -> str:
        from sardonyx import _notebook

        return _notebook.profile(self)

    def __repr__(self) -> str:
        return f"Profile({self.runs} runs, {len(self.steps)} steps, {self.run_us:g} us)"

    def __str__(self) -> str:
        """The slowest steps as lines of text."""
        rows = [(f"{step.us:.0f}", step.op, step.node, step.kernel) for step in self.slowest()]
        rows.insert(0, ("us", "operator", "node", "kernel"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{us:>{widths[0]}}  {op:<{widths[1]}}  {node:<{widths[2]}}  {kernel}"
            for us, op, node, kernel in rows
        ]
        return "\n".join([repr(self), *(line.rstrip() for line in lines)])
