"""22 threads: 10 write sequences of numbers to pipes, 10 read them and expect no gap, one waits for a condition, and the first one answers.

Usage: threads.py ANSWER
"""

import os
import struct
import sys
import threading
import time

from answers import Answers

PIPES = 10


def main():
    answers = Answers(sys.argv[1])
    counts, wrong = [0] * PIPES, []
    turns, condition = [0], threading.Condition()

    def write(end):
        number = 0
        while True:
            os.write(end, struct.pack("Q", number) * 3)
            number += 1
            time.sleep(0.01)

    def read(index, end):
        held = b""
        while True:
            # Less than a record: some are in parts in the pipe and in memory.
            held += os.read(end, 20)
            while len(held) >= 24:
                if held[:24] != struct.pack("Q", counts[index]) * 3:
                    wrong.append((index, counts[index], held[:24]))
                held = held[24:]
                counts[index] += 1

    def wait():
        while True:
            with condition:
                condition.wait(0.05)
                turns[0] += 1

    for index in range(PIPES):
        source, sink = os.pipe()
        threading.Thread(target=write, args=(sink,), daemon=True).start()
        threading.Thread(target=read, args=(index, source), daemon=True).start()
    threading.Thread(target=wait, daemon=True).start()
    answers.write("ready")
    while True:
        time.sleep(0.05)
        if answers.was_asked():
            answers.state(counts + turns, wrong)


main()
