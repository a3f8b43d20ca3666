"""Reports of page reclaim, from recordings (`.pht`), `trace.dat` files and text traces. `pagehaul reclaim report --json` prints the same."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Union

from ._native import _reclaim_json
from ._objects import build


@dataclass(frozen=True)
class Source:
    """The recording."""

    files: List[str]
    format: str
    duration_s: float
    events: int
    big_endian: bool
    command: List[str]
    settings: Dict[str, str]
    release: Optional[str] = None
    hostname: Optional[str] = None
    machine: Optional[str] = None
    clock: Optional[str] = None
    cpus: Optional[int] = None
    page_size: Optional[int] = None
    mglru: Optional[bool] = None


@dataclass(frozen=True)
class CommandResult:
    """Results of the command that was recorded, by run."""

    wall_s: List[float]
    user_s: List[float]
    system_s: List[float]
    max_rss_mib: List[float]
    exits: List[str]


@dataclass(frozen=True)
class Row:
    """A figure of every run."""

    name: str
    unit: str
    better: str
    """Which way it should go: "lower", "higher" or "neither"."""
    values: List[float]
    note: Optional[str] = None
    """Why the figure is unavailable, or where else it comes from."""


@dataclass(frozen=True)
class Section:
    """Rows under a heading."""

    title: str
    rows: List[Row]


@dataclass(frozen=True)
class Bucket:
    """A range of a histogram."""

    from_us: int
    to_us: int
    count: int


@dataclass(frozen=True)
class Stalls:
    """The stalls of one kind of reclaim."""

    reclaimer: str
    name: str
    count: int
    total_ms: float
    percentiles_ms: List[Tuple[float, float]]
    histogram: List[Bucket]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    number: bool


@dataclass(frozen=True)
class Table:
    """Figures by task, memory cgroup, node or something else."""

    title: str
    about: str
    columns: List[Column]
    rows: List[List[Any]]
    omitted_rows: int


@dataclass(frozen=True)
class Timeline:
    """Activity over time, in slices of equal length."""

    slice_s: float
    direct: List[float]
    memcg: List[float]
    kswapd: List[float]
    throttled: List[float]
    kswapd_mib_s: List[float]
    task_mib_s: List[float]
    runs: List[Tuple[float, float]]


@dataclass(frozen=True)
class Check:
    """A figure of the trace, compared with the kernel's own counter."""

    what: str
    trace: float
    counted: float
    counters: str
    verdict: str
    note: Optional[str] = None


@dataclass(frozen=True)
class Pressure:
    """Time that tasks stalled on memory, as PSI counts it."""

    some_us: int
    full_us: int


@dataclass(frozen=True)
class Lost:
    """What the trace does not hold."""

    events: int
    gaps: int
    damaged: int
    counted_by_kernel: int
    unknown_events: int
    unfinished: int
    unmatched: int
    uncertain: int


@dataclass(frozen=True)
class Report:
    """Page reclaim in a recording."""

    label: str
    source: Source
    sections: List[Section]
    stalls: List[Stalls]
    tables: List[Table] = field(repr=False)
    timeline: Timeline = field(repr=False)
    checks: List[Check]
    lost: Lost
    warnings: List[str]
    result: Optional[CommandResult] = None
    pressure: Optional[Pressure] = None

    def rows(self) -> Dict[str, Row]:
        """Returns the rows of all sections by name."""
        return {row.name: row for section in self.sections for row in section.rows}


def report(path: Union[str, os.PathLike[str]], label: Optional[str] = None) -> Report:
    """Reads a recording, a file or a URL, to its end, and reports on it. Its name is the label unless another is given.

    Raises TraceError if it holds no events of reclaim.
    """
    return build(Report, json.loads(_reclaim_json(path, label)))
