#!/usr/bin/env python3
"""Prints the words of the kernel's messages: those of the printk formats in kernels and modules.

crates/redact/src/words.txt was made by it, of Debian's kernels 5.10 to 7.2 with their modules:

    scripts/kernel_words.py vmlinux... /lib/modules/... > crates/redact/src/words.txt

With --formats first, it prints the formats instead, one in a line.

A word that few formats have may be a name that a driver's author gave, and somebody else has: it is left out.
"""

import collections
import lzma
import os
import re
import subprocess
import sys

# KERN_SOH and a level: include/linux/kern_levels.h (04d2c8c83d0e, Linux 3.6).
FORMAT = re.compile(rb"\x01[0-7c]([\t\n\x20-\x7e]{4,400})\x00")
CONVERSION = re.compile(r"%[-+ #0]*[0-9*]*(?:\.[0-9*]+)?(?:hh|h|ll|l|z|t|L)*(?:p[a-zA-Z0-9]{0,3}|[a-zA-Z%])")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_'-]*[A-Za-z0-9]|[A-Za-z]")
LEAST_FORMATS = 3
# Words of the kernel that hosts, programs and people are called by.
NAMES = set("alpha app backup delta don fred kim mail orion prod staging store thomas venus".split())


def contents(path):
    if path.endswith(".xz"):
        return lzma.open(path).read()
    if path.endswith(".zst"):
        return subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout
    with open(path, "rb") as file:
        return file.read()


def files(path):
    if not os.path.isdir(path):
        return [path]
    found = (os.path.join(place, name) for place, _, names in os.walk(path) for name in names)
    return [file for file in found if re.search(r"\.ko(\.xz|\.zst)?$", file)]


arguments = sys.argv[1:]
prints_formats = arguments[:1] == ["--formats"]
formats = set()
for path in (file for argument in arguments[prints_formats:] for file in files(argument)):
    formats.update(found[1].decode() for found in FORMAT.finditer(contents(path)))

if prints_formats:
    print("\n".join(sorted({line for text in formats for line in text.splitlines() if line.strip()})))
    sys.exit()

counts = collections.Counter()
for text in formats:
    words = set(WORD.findall(CONVERSION.sub(" ", text)))
    parts = {part for word in words for part in re.split("[-']", word) if part}
    counts.update({word.lower() for word in words | parts})

for word in sorted(counts):
    is_common = counts[word] >= LEAST_FORMATS or "_" in word.strip("_")
    if is_common and word[0].isalpha() and word not in NAMES:
        print(word)
