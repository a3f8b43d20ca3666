"""A dump."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple

from . import _native
from ._objects import build
from .facts import Facts
from .triage import Report

_PIECE = 1 << 20


class Note(NamedTuple):
    """An ELF note."""

    name: str
    """Name of the owner: "CORE", "VMCOREINFO", "QEMU"."""
    type: int
    """Type, numbered by the owner."""
    contents: bytes


class CpuRegisters(NamedTuple):
    """Registers of a CPU, from its NT_PRSTATUS note."""

    cpu: int
    """Number of the CPU in the order of the notes."""
    pid: int
    """PID of the task that it ran; 0 for the idle task."""
    registers: Dict[str, int]
    """Values by name."""


class Dump(_native.Dump):
    """The memory of a crashed machine. `pagehaul.open()` makes it.

    It holds its files open until `close()`, the end of its `with` statement, or the end of the object. Then `paths` and `closed` are all
    that it has: everything else raises `pagehaul.Closed`. Tables and page maps that were made before keep their contents.
    """

    @property
    def registers(self) -> List[CpuRegisters]:
        """Registers of each CPU that left them, on 64-bit machines."""
        return [CpuRegisters(cpu, pid, dict(registers)) for cpu, pid, registers in self._registers()]

    @property
    def notes(self) -> List[Note]:
        """The ELF notes."""
        return [Note(*note) for note in self._notes()]

    def readinto(self, address: int, buffer: Any, *, physical: bool) -> int:
        """Fills a writable buffer (bytearray, memoryview, numpy array) from an address, and returns its size in bytes.

        >>> buffer = bytearray(4096)
        >>> dump.readinto(0x4A00000, buffer, physical=True)
        4096
        """
        view = memoryview(buffer).cast("B")
        for at in range(0, len(view), _PIECE):
            size = min(_PIECE, len(view) - at)
            view[at : at + size] = self.read(address + at, size, physical=physical)
        return len(view)

    def facts(self) -> Facts:
        """Returns the facts of the crash: ID, host, kernel, kind of death, signature, log.

        It always succeeds. What could not be read is None, and `missing` has the reasons.
        """
        return build(Facts, json.loads(self._facts_json()))

    def triage(self, *, stacks: bool = False) -> Report:
        """Explains why the machine crashed or stalled. `stacks` unwinds all tasks.

        Raises KernelError if the dump has neither symbols nor a log. Without symbols the report rests on the notes and the log.
        """
        return build(Report, json.loads(self._triage_json(stacks)))

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}pagehaul.Dump {', '.join(map(str, self.paths))}>"
