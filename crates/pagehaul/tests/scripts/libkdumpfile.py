"""Reads dumps with libkdumpfile, and compares their pages with those of an ELF vmcore.

Usage: libkdumpfile.py VMCORE
For each path on standard input it prints one line: how many pages are right, are zeros instead, have other contents, and
cannot be read; or `refused`; or `died` and the number of the signal. Each dump is read by a process of its own, which may die of it.
"""

import mmap
import os
import struct
import sys

import kdumpfile

PAGE = 4096
ZEROS = bytes(PAGE)


def pages(path):
    """Addresses and contents: of zeros, every 16th."""
    with open(path, "rb") as file:
        bytes_ = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    table, = struct.unpack_from("<Q", bytes_, 32)
    count, = struct.unpack_from("<H", bytes_, 56)
    found = []
    for header in range(table, table + 56 * count, 56):
        kind, _, offset, _, address, size = struct.unpack_from("<IIQQQQ", bytes_, header)
        if kind != 1:
            continue
        skipped = -address % PAGE
        for at in range(skipped, size - PAGE + 1, PAGE):
            page = bytes_[offset + at:offset + at + PAGE]
            if page != ZEROS or (address + at) // PAGE % 16 == 0:
                found.append((address + at, page))
    return found


def judge(path, expected):
    try:
        dump = kdumpfile.kdumpfile(path)
    except Exception:
        return "refused"
    right = zeros = wrong = errors = 0
    for address, page in expected:
        try:
            found = bytes(dump.read(kdumpfile.KDUMP_MACHPHYSADDR, address, PAGE))
        except Exception:
            errors += 1
            continue
        if found == page:
            right += 1
        elif found == ZEROS:
            zeros += 1
        else:
            wrong += 1
    return f"{right} {zeros} {wrong} {errors}"


def main():
    expected = pages(sys.argv[1])
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, judge(line.rstrip("\n"), expected).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            result = file.read()
        _, status = os.waitpid(child, 0)
        print(result if status == 0 else f"died {status}", flush=True)


main()
