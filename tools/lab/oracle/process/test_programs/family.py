"""A tree of 6 processes that share memory: an anonymous mapping and a memfd. Usage: family.py ANSWER

They take turns: each writes the number of the turn to the shared memory, and keeps it in its own. A process whose memory is of another
moment than the shared memory finds another turn than it expects.
"""

import mmap
import os
import random
import signal
import struct
import sys
import time

from answers import Answers

PROCESSES = 6
SHARED, OWN, MIB = 8 << 20, 5 << 20, 1 << 20
# Where the words are: in the anonymous mapping the turn, and who found what was wrong, and when; then 1,000 turns, of which a process
# finds the one that another wrote. In the memfd the turn again.
TURN, WRONG, TURNS, TURN_IN_MEMFD = 0, 16, 4096, 4096


def word(area, at):
    return struct.unpack_from("Q", area, at)[0]


def fork():
    """Returns the number of the process: the first one has three children, two of which have one."""
    me = 0
    for number, parent in ((1, 0), (2, 0), (3, 0), (4, 1), (5, 2)):
        if me == parent and os.fork() == 0:
            me = number
    return me


def main():
    anonymous = mmap.mmap(-1, SHARED)
    named = os.memfd_create("shared")
    os.ftruncate(named, SHARED)
    memfd = mmap.mmap(named, SHARED)
    fixed = random.Random(2).randbytes(MIB)
    for at in range(MIB, SHARED, MIB):
        anonymous[at:at + MIB] = fixed
    own = mmap.mmap(-1, OWN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    me = fork()
    answers = Answers(sys.argv[1])
    if me:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    own[:] = bytes([me + 1]) * OWN
    last = None
    while True:
        turn = word(anonymous, TURN)
        if turn % PROCESSES == me:
            slot = TURNS + turn % 1000 * 8
            is_right = (last is None or last + PROCESSES == turn) and word(memfd, TURN_IN_MEMFD) == turn
            is_right = is_right and (turn < 1000 or word(anonymous, slot) == turn - 1000)
            is_right = is_right and (last is None or word(own, last % 1000 * 4096) == last)
            if not is_right:
                struct.pack_into("QQ", anonymous, WRONG, me + 1, turn)
            last = turn
            struct.pack_into("Q", own, turn % 1000 * 4096, turn)
            struct.pack_into("Q", anonymous, slot, turn)
            struct.pack_into("Q", memfd, TURN_IN_MEMFD, turn + 1)
            struct.pack_into("Q", anonymous, TURN, turn + 1)
            if me == 0 and turn == PROCESSES * 2:
                answers.write("ready")
        if answers.was_asked():
            who, when = struct.unpack_from("QQ", anonymous, WRONG)
            wrong = [f"process {who - 1} in turn {when}"] if who else []
            wrong += [f"MiB {at >> 20}" for at in range(MIB, SHARED, MIB) if anonymous[at:at + MIB] != fixed]
            answers.state([turn], wrong)
        time.sleep(0.002)


main()
