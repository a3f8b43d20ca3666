"""The triage report. `pagehaul triage --json` prints the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from .facts import Crash


@dataclass(frozen=True)
class Taint:
    """A reason why the kernel is tainted."""

    letter: str
    meaning: str


@dataclass(frozen=True)
class System:
    """The machine."""

    release: str
    page_size: int
    """Bytes of a page, of which the report counts memory."""
    cpus: int
    taints: List[Taint]
    version: Optional[str] = None
    hostname: Optional[str] = None
    crash_time: Optional[int] = None
    """Seconds since 1970."""
    uptime: Optional[float] = None
    """Seconds."""
    load: Optional[List[float]] = None
    command_line: Optional[str] = None


@dataclass(frozen=True)
class LogLine:
    """A line of the kernel log."""

    seconds: float
    text: str
    important: bool = False
    """Whether its level is warning or worse."""


@dataclass(frozen=True)
class Death:
    """How the machine died."""

    kind: Optional[str]
    earlier: List[LogLine]
    oom_kills: int
    line: Optional[LogLine] = None
    cause: Optional[LogLine] = None
    corruption: Optional[LogLine] = None
    task: Optional[Tuple[str, int]] = None
    """Name and PID."""
    cpu: Optional[int] = None
    stuck_seconds: Optional[int] = None
    unknown: Optional[str] = None
    """Why no kind says nothing: the log cannot be read, or not in whole."""


@dataclass(frozen=True)
class Gap:
    """A part that was not read in whole."""

    part: str
    nothing: bool
    """Whether nothing of it was read."""


@dataclass(frozen=True)
class Frame:
    """A function on a stack."""

    pc: int
    sp: int
    function: str
    name: str
    """Function with offset, size and module."""
    module: Optional[str] = None
    guess: bool = False
    """Whether it was searched on the stack instead of unwound."""
    interrupted: bool = False


@dataclass(frozen=True)
class StackTrace:
    """A stack."""

    frames: List[Frame]
    end: str
    """Why it ends."""
    complete: bool


@dataclass(frozen=True)
class Signature:
    """Groups equal crashes."""

    kind: str
    sig_version: int
    sig: str
    sig_fine: str
    frames: List[str]
    corrupted: bool
    sig_coarse: Optional[str] = None
    coarse_version: Optional[int] = None


@dataclass(frozen=True)
class Finding:
    """A finding with its evidence."""

    weight: int
    text: str
    evidence: List[str]
    next: str
    """The command that shows more."""


@dataclass(frozen=True)
class Task:
    """A thread."""

    address: int
    """Address of its task_struct."""
    pid: int
    tgid: int
    ppid: int
    comm: str
    state: str
    kernel_thread: bool
    cpu: int
    mm: int
    flags: int
    seconds_since_run: Optional[float] = None


@dataclass(frozen=True)
class Cpu:
    """A CPU that was online."""

    number: int
    saved_registers: bool
    user_mode: bool
    idle: bool
    crashed: bool
    task: Optional[Task] = None
    runnable: Optional[int] = None
    interrupts_on: Optional[bool] = None
    stack: Optional[StackTrace] = None
    seconds_without_tick: Optional[float] = None
    """Seconds since its last tick; None of idle CPUs."""
    pending_calls: List[str] = field(default_factory=list)
    """Functions that other CPUs asked it to call, which it has not called yet."""
    pid: Optional[int] = None
    """PID of its task by the notes, where the task is not known; 0 of an idle task."""


@dataclass(frozen=True)
class StackGroup:
    """Blocked tasks with the same stack."""

    pids: List[int]
    first: str
    longest_seconds: float
    stack: StackTrace


@dataclass(frozen=True)
class Wait:
    """A task that waits for a lock."""

    pid: int
    comm: str
    seconds: Optional[float] = None


@dataclass(frozen=True)
class Held:
    """A lock that tasks wait for."""

    kind: str
    name: str
    owner_is_hint: bool
    waiters: List[Wait]
    lock: Optional[int] = None
    owner: Optional[Tuple[str, int]] = None
    """Name and PID."""
    readers: Optional[int] = None
    """Readers that hold it, where the kernel has their number only."""
    owner_stack: Optional[StackTrace] = None
    """Where the owner is."""


@dataclass(frozen=True)
class Worker:
    """A worker of a workqueue that runs a work."""

    pid: int
    comm: str
    work: int
    function: str
    pending: int
    """Works of its workqueue that wait behind it."""
    waiters: List[Wait]
    """Tasks that wait for the work."""
    workqueue: Optional[str] = None


@dataclass(frozen=True)
class Locks:
    """Locks that tasks wait for."""

    held: List[Held]
    cycles: List[List[int]]
    """PIDs of each deadlock."""
    unknown: List[int]
    """PIDs that wait for a lock whose address is unknown."""
    kinds: List[str] = field(default_factory=list)
    """Kinds of locks whose waiters were looked for."""


@dataclass(frozen=True)
class Zone:
    """A zone of a node, in pages."""

    node: int
    name: str
    managed: int
    free: int
    per_cpu: int
    watermarks: List[int]
    """Minimum, low, high."""
    orders: List[int]
    """Free blocks by order."""


@dataclass(frozen=True)
class Process:
    """Memory of a process, in pages."""

    pid: int
    comm: str
    anon: int
    file: int
    shmem: int
    swap: int


@dataclass(frozen=True)
class Memory:
    """Memory, in pages."""

    zones: List[Zone]
    counters: Dict[str, int]
    usage: Dict[str, int]
    kswapd_failures: int
    reclaimers: List[str]
    processes: List[Process]
    missing: List[str]
    unaccounted: Optional[int] = None
    swap: Optional[Tuple[int, int]] = None


@dataclass(frozen=True)
class SlabCache:
    """A slab cache."""

    name: str
    object_size: int
    objects: int
    slabs: int
    bytes: int


@dataclass(frozen=True)
class VmallocCaller:
    """A user of the vmalloc space."""

    caller: str
    areas: int
    bytes: int


@dataclass(frozen=True)
class Vmalloc:
    """The vmalloc space."""

    areas: int
    bytes: int
    callers: List[VmallocCaller]
    backlog_pages: Optional[int] = None
    broken: Optional[str] = None


@dataclass(frozen=True)
class Request:
    """A block request in flight."""

    address: int
    disk: str
    operation: str
    bytes: int
    age: Optional[float] = None
    """Seconds."""


@dataclass(frozen=True)
class Suspended:
    """A device-mapper device that is suspended."""

    disk: str
    address: int
    has_waiting: bool


@dataclass(frozen=True)
class TransmitQueue:
    """A transmit queue that is stopped or holds packets."""

    index: int
    address: int
    stopped: bool
    """Whether the driver stopped it."""
    limited: bool
    """Whether the limit of bytes in flight stopped it."""
    packets: int
    idle: Optional[float] = None
    """Seconds since the driver last took a packet."""


@dataclass(frozen=True)
class NetDevice:
    """A network device."""

    address: int
    name: str
    up: bool
    carrier: bool
    queues: int
    """Number of its transmit queues."""
    busy: List[TransmitQueue]
    """Those that are stopped or hold packets."""
    namespace: Optional[int] = None
    """Inode number of its network namespace, unless that is the initial one."""


@dataclass(frozen=True)
class Backlog:
    """Received packets that a CPU has not processed."""

    cpu: int
    packets: int
    dropped: int
    squeezed: int


@dataclass(frozen=True)
class Net:
    """What the network was doing."""

    devices: List[NetDevice]
    backlogs: List[Backlog]
    backlog_limit: Optional[int] = None
    broken: Optional[str] = None


@dataclass(frozen=True)
class Module:
    """A module of the kernel."""

    address: int
    name: str
    base: int
    size: int
    taints: str
    version: Optional[str] = None


@dataclass(frozen=True)
class TaskStack:
    """The stack of a task; None if it runs in user mode or cannot be read."""

    pid: int
    stack: Optional[StackTrace] = None


@dataclass(frozen=True)
class Report:
    """Why the machine crashed or stalled."""

    system: System
    death: Death
    cause: List[Frame]
    """The frames that are to blame."""
    verdict: List[Finding]
    """The weightiest findings."""
    cpus: List[Cpu]
    states: Dict[str, int]
    """Numbers of tasks by state."""
    blocked: List[StackGroup]
    locks: Locks
    memory: Memory
    slab: List[SlabCache]
    requests: List[Request]
    suspended: List[Suspended]
    net: Net
    modules: List[Module]
    log: List[LogLine]
    """The end of the kernel log."""
    missing: List[str]
    """What could not be read, one sentence each."""
    signature: Optional[Signature] = None
    crash: Optional[Crash] = None
    """The crash as the log has it, without the kernel's symbols."""
    vmalloc: Optional[Vmalloc] = None
    running: bool = False
    """Whether the kernel ran while its memory was read."""
    gaps: List[Gap] = field(default_factory=list)
    """The parts that were not read in whole."""
    workers: List[Worker] = field(default_factory=list)
    """Workers that run a work."""
    tasks: List[Task] = field(default_factory=list, repr=False)
    stacks: Optional[List[TaskStack]] = field(default=None, repr=False)
