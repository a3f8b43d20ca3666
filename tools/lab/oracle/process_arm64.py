"""Checks cores of arm64 processes on this machine: drgn's view of threads, registers and memory, and what pagehaul says.

Usage: process_arm64.py PAGEHAUL DIRECTORY

DIRECTORY has what tools/lab/src/validate/process_arm64.sh writes: cores of the test program
(crates/pagehaul/examples/subject.rs), whose first thread keeps known values in its registers, and the line that it prints.
"""

import pathlib
import struct
import subprocess
import sys

import drgn

PAGE = 4096
MASK = (1 << 64) - 1
NOTES = {1: "PRSTATUS", 2: "PRFPREG", 0x401: "TLS", 0x402: "HW_BREAK", 0x403: "HW_WATCH", 0x404: "SYSTEM_CALL",
         0x405: "SVE", 0x406: "PAC_MASK", 0x407: "PACA_KEYS", 0x408: "PACG_KEYS", 0x409: "TAGGED_ADDR_CTRL",
         0x40A: "PAC_ENABLED_KEYS", 0x40B: "SSVE", 0x40C: "ZA", 0x40D: "ZT", 0x40E: "FPMR", 0x40F: "POE", 0x410: "GCS"}


def page(index):
    """The page of the test program's memory with this number; of the first 4 MiB, whose words are random."""
    state, words = index + 1, []
    for _ in range(PAGE // 8):
        state = (state ^ state << 13) & MASK
        state ^= state >> 7
        state = (state ^ state << 17) & MASK
        words.append(state)
    return struct.pack(f"<{len(words)}Q", *words)


def notes(core):
    """Yields (type, contents) of each note."""
    data = core.read_bytes()
    table, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for index in range(count):
        kind, _, offset, _, _, size, _, _ = struct.unpack_from("<IIQQQQQQ", data, table + index * 56)
        at, end = offset, offset + size
        while kind == 4 and at < end:
            name, length, note = struct.unpack_from("<III", data, at)
            start = at + 12 + (name + 3 & ~3)
            yield note, data[start:start + length]
            at = start + (length + 3 & ~3)


def check(pagehaul, core, mode, ready):
    _, pid, address, length, _ = ready.split()
    pid, address, length = int(pid), int(address, 16), int(length, 16)
    program = drgn.Program()
    program.set_core_dump(core)
    assert program.platform.arch == drgn.Architecture.AARCH64, program.platform
    threads = {thread.tid: thread for thread in program.threads()}
    # Two that count, and one that answers.
    assert len(threads) == 4 and pid in threads, sorted(threads)
    registers = threads[pid].stack_trace()[0].registers()
    if mode == "registers":
        wrong = [n for n in range(29) if n != 19 and registers[f"x{n}"] != 0x1000 + n]
        assert not wrong, f"{core}: registers {wrong} have other values: {registers}"
    found = program.read(address, length)
    expected = b"".join(page(index) for index in range(length // PAGE))
    assert found == expected, f"{core}: the program's memory differs"
    kinds = list(notes(core))
    first = [kind for kind, _ in kinds if kind in NOTES]
    first = first[:first.index(1, 1)]
    if mode == "vectors":
        sve = next(note for kind, note in kinds if kind == 0x405)
        size, _, vector, _, flags, _ = struct.unpack_from("<IIHHHH", sve)
        # Z0, whose lanes are 5, follows the header.
        assert size <= len(sve) and flags & 1 and sve[16:16 + vector] == struct.pack("<Q", 5) * (vector // 8), sve[:64]
    said = subprocess.run([pagehaul, "verify", core], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    said = subprocess.run([pagehaul, "info", core], capture_output=True, text=True)
    assert said.returncode == 0 and str(pid) in said.stdout, said.stdout + said.stderr
    return [NOTES[kind] for kind in first]


def main():
    pagehaul, directory = sys.argv[1], pathlib.Path(sys.argv[2]) / "cores"
    for mode in ("registers", "vectors"):
        ready = (directory / f"{mode}.ready").read_text().splitlines()[0]
        for way in ("stopped", "snapshot", "live"):
            frames, core = directory / f"{mode}.{way}.zst", directory / "core"
            subprocess.run([pagehaul, "verify", frames], check=True, capture_output=True)
            subprocess.run(["zstd", "-dqf", frames, "-o", core], check=True)
            found = check(pagehaul, core, mode, ready)
            print(f"ok   core of an arm64 process ({mode}, {way}): threads, registers and memory in drgn; notes {' '.join(found)}")


main()
