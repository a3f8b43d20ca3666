"""Latencies of functions and between trace events, from trace files. `pagehaul latency --from FILE --json` prints the same."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple, Union

from ._native import _latency_json
from ._objects import build


@dataclass(frozen=True)
class Bucket:
    """A range of a histogram."""

    low: int
    high: int
    count: int


@dataclass(frozen=True)
class Histogram:
    """Latencies of one function, or of all measured functions together."""

    name: str
    """The function or functions; empty for a pair of events."""
    unit: str
    count: int
    total_ns: int
    mean_ns: int
    percentiles_are_bounds: bool
    percentiles_ns: Dict[str, Optional[int]]
    log2: List[Bucket]
    min_ns: Optional[int] = None
    max_ns: Optional[int] = None
    linear: Optional[List[Bucket]] = None


@dataclass(frozen=True)
class Missed:
    """Calls that could not be measured."""

    ends_without_start: int
    starts_without_end: int
    open_at_gap: int
    open_at_end: int
    nested: int
    probe_misses: int
    dropped: int
    lost_events: int


@dataclass(frozen=True)
class Report:
    """Latencies in a trace file."""

    mechanism: str
    histograms: List[Histogram]
    missed: Missed
    warnings: List[str]
    """What the reader should know, one sentence each: a truncated file, parts left out."""


def report(
    path: Union[str, os.PathLike[str]],
    functions: Sequence[str] = ("*",),
    *,
    between: Optional[Tuple[str, str]] = None,
    key: str = "task",
    by_function: bool = False,
) -> Report:
    """Measures functions (names, or globs of * and ?), or the time between two trace events ("vmscan:mm_vmscan_kswapd_wake").

    `key` is what matches starts with ends: "task", or fields of both events ("dev,sector"). Raises TraceError if the file lacks the
    events.
    """
    return build(Report, json.loads(_latency_json(path, list(functions), between, key, by_function)))
