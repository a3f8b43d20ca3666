"""Memory whose every page says when it was written to last. Usage: writer.py MIB MB_PER_SECOND ANSWER

The writes of one sequence go to pages in an order that is known, so that each page's number follows from how many writes there were. A
page of another moment has another number.
"""

import mmap
import random
import struct
import sys
import time

from answers import Answers

STEP = 7919
"""Pages from one write to the next: has no common factor with the number of pages."""


def main():
    mib, megabytes, place = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    answers = Answers(place)
    pages, rate = mib << 8, megabytes * 1e6 / 4096
    inverse = pow(STEP, -1, pages)
    block = random.Random(1).randbytes(1 << 16)
    area = mmap.mmap(-1, pages << 12, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def body(page):
        at = page * 48 % ((1 << 16) - 4080)
        return block[at:at + 4080]

    for page in range(pages):
        area[page << 12:(page + 1) << 12] = bytes(8) + body(page) + bytes(8)
    count = 0

    def wrong_pages():
        wrong = []
        for page in range(pages):
            first = page * inverse % pages
            last = 0 if first >= count else first + (count - 1 - first) // pages * pages + 1
            number = struct.pack("Q", last)
            found = area[page << 12:(page + 1) << 12]
            if found != number + body(page) + number:
                first, second = struct.unpack("Q4080xQ", found)
                wrong.append({"page": page, "expected": last, "found": (first, second), "body": found[8:4088] == body(page)})
        return wrong

    answers.write("ready")
    begun, done = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * rate)
        # Of a stop, no more than 20 ms are made up for.
        done = max(done, due - int(rate / 50))
        while done < due:
            at = (count * STEP % pages) << 12
            count += 1
            struct.pack_into("Q", area, at, count)
            struct.pack_into("Q", area, at + 4088, count)
            done += 1
        if answers.was_asked():
            answers.state([count], wrong_pages())
        time.sleep(0.001)


main()
