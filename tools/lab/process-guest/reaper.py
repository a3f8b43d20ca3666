"""Runs a command, and waits for every process that loses its parent.

The init of these guests waits for its script only. A zombie would keep the number that a restart needs. Usage: reaper.py COMMAND...
"""

import ctypes
import os
import sys

PR_SET_CHILD_SUBREAPER = 36


def main():
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    child = os.fork()
    if child == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            sys.exit(code if code >= 0 else 1)


main()
