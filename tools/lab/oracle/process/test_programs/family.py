"""A tree of 6 processes that share memory: an anonymous mapping and a memfd. Usage: family.py ANSWER

They take turns: each writes the number of the turn to the shared memory, and keeps it in its own. A process whose memory is of another
moment than the shared memory finds another turn than it expects.
"""

import mmap
import os
import random
import signal
import sys
import time

from answers import Answers

PROCESSES = 6
SHARED, OWN, MIB = 8 << 20, 5 << 20, 1 << 20
# Numbers of words. In the anonymous mapping: the turn, what was wrong first (its kind, who found it, and when), and the last 1,000 turns,
# each of which a process finds that another wrote. In the memfd: the turn again. In a process's own memory: a word in each page.
TURN, KIND, WHO, WHEN, TURNS = 0, 2, 3, 4, 512
WORDS_IN_PAGE = 512
KINDS = ("", "the turn", "the memfd", "an earlier turn", "its own memory")


def fork():
    """Returns the number of the process: the first one has three children, two of which have one."""
    me = 0
    for number, parent in ((1, 0), (2, 0), (3, 0), (4, 1), (5, 2)):
        if me == parent and os.fork() == 0:
            me = number
    return me


def words(area):
    """A word is written at once. struct.pack_into sets it to zero before, which other processes see."""
    return memoryview(area).cast("Q")


def main():
    area = mmap.mmap(-1, SHARED)
    named = os.memfd_create("shared")
    os.ftruncate(named, SHARED)
    memfd_area = mmap.mmap(named, SHARED)
    fixed = random.Random(2).randbytes(MIB)
    for at in range(MIB, SHARED, MIB):
        area[at:at + MIB] = fixed
    own_area = mmap.mmap(-1, OWN, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    me = fork()
    answers = Answers(sys.argv[1])
    if me:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    own_area[:] = bytes([me + 1]) * OWN
    shared, memfd, own = words(area), words(memfd_area), words(own_area)
    last = None

    def kind_of_error(turn):
        if last is not None and last + PROCESSES != turn:
            return 1
        if memfd[TURNS] != turn:
            return 2
        if turn >= 1000 and shared[TURNS + turn % 1000] != turn - 1000:
            return 3
        return 4 if last is not None and own[last % 1000 * WORDS_IN_PAGE] != last else 0

    while True:
        turn = shared[TURN]
        if turn % PROCESSES == me:
            kind = kind_of_error(turn)
            if kind and not shared[KIND]:
                shared[WHO], shared[WHEN], shared[KIND] = me, turn, kind
            last = turn
            own[turn % 1000 * WORDS_IN_PAGE] = turn
            shared[TURNS + turn % 1000] = turn
            memfd[TURNS] = turn + 1
            shared[TURN] = turn + 1
            if me == 0 and turn == PROCESSES * 2:
                answers.write("ready")
        if answers.was_asked():
            wrong = [f"{KINDS[shared[KIND]]}, of process {shared[WHO]} in turn {shared[WHEN]}"] if shared[KIND] else []
            wrong += [f"MiB {at >> 20}" for at in range(MIB, SHARED, MIB) if area[at:at + MIB] != fixed]
            answers.state([turn], wrong)
        time.sleep(0.002)


main()
