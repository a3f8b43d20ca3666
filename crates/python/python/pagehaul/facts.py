"""The facts of a crash, from its notes and its log. docs/schema.md of pagehaul describes the fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional


@dataclass(frozen=True)
class Crash:
    """The crash that the log describes."""

    kind: str
    sig_version: int
    sig: str
    sig_fine: str
    frames: List[str]
    corrupted: bool
    title: str
    uptime_ns: int
    panic: Optional[str] = None
    task: Optional[str] = None
    pid: Optional[int] = None
    cpu: Optional[int] = None
    taint: Optional[str] = None
    hardware: Optional[str] = None
    text: str = ""
    sig_coarse: Optional[str] = None
    coarse_version: Optional[int] = None


@dataclass(frozen=True)
class MissingItem:
    """Something that could not be read or made."""

    what: str
    reason: str


@dataclass(frozen=True)
class LogRecord:
    """A record of the kernel log."""

    time_ns: int
    level: int
    facility: int
    text: str
    seq: Optional[int] = None
    task: Optional[int] = None
    cpu: Optional[int] = None


@dataclass(frozen=True)
class Facts:
    """What is known of a crash without symbols. What is not known is None."""

    schema_version: int
    extractor: str
    crash_id: str
    id_weak: bool
    arch: str
    cpus: int
    memory_bytes: int
    crash_time: Optional[int] = None
    host: Optional[str] = None
    release: Optional[str] = None
    version: Optional[str] = None
    build_id: Optional[str] = None
    page_size: Optional[int] = None
    crash: Optional[Crash] = None
    missing: List[MissingItem] = field(default_factory=list)
    log: List[LogRecord] = field(default_factory=list, repr=False)
