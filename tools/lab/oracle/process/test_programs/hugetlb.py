"""Huge pages of hugetlbfs that are written to: a private mapping, a shared one, and a memfd. Usage: hugetlb.py ANSWER

Each huge page has a word at its start that counts, and another in its middle that follows from it. The last page of each stays untouched.
"""

import mmap
import os
import pathlib
import re
import struct
import sys
import time

from answers import Answers

MAP_HUGETLB = 0x40000
PAGES = 3
"""Of each mapping, the untouched one included."""


def main():
    answers = Answers(sys.argv[1])
    text = pathlib.Path("/proc/meminfo").read_text()
    size = int(re.search(r"^Hugepagesize: +(\d+)", text, re.M).group(1)) << 10
    named = os.memfd_create("huge", os.MFD_HUGETLB)
    os.ftruncate(named, PAGES * size)
    areas = [mmap.mmap(-1, PAGES * size, flags=mmap.MAP_ANONYMOUS | kind | MAP_HUGETLB)
             for kind in (mmap.MAP_PRIVATE, mmap.MAP_SHARED)]
    areas.append(mmap.mmap(named, PAGES * size))
    # Its own in each page, which never changes.
    fixed = [[os.urandom(4096) for _ in range(PAGES - 1)] for _ in areas]
    places = [(area, index, page) for index, area in enumerate(areas) for page in range(PAGES - 1)]
    for area, index, page in places:
        for at in range(4096, size - 4096, 1 << 18):
            area[page * size + at:page * size + at + 4096] = fixed[index][page]
    count = 0

    def wrong_pages():
        wrong = []
        for area, index, page in places:
            start = page * size
            words = [struct.unpack_from("Q", area, at)[0] for at in (start, start + size // 2)]
            if words != [count, count ^ page]:
                wrong.append((index, page, count, words))
            parts = (start + at for at in range(4096, size - 4096, 1 << 18))
            if any(area[at:at + 4096] != fixed[index][page] for at in parts):
                wrong.append((index, page, "bytes"))
        return wrong

    answers.write("ready")
    while True:
        count += 1
        for area, _, page in places:
            struct.pack_into("Q", area, page * size, count)
            struct.pack_into("Q", area, page * size + size // 2, count ^ page)
        if answers.was_asked():
            answers.state([count], wrong_pages())
        time.sleep(0.001)


main()
