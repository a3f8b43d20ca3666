"""A program of test_programs/, which answers SIGUSR1 with its state."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from .support import gone, tree_of, until

DIRECTORY = pathlib.Path(__file__).parent / "test_programs"


class TestProgram:
    def __init__(self, v, name, *arguments):
        self.place = v.directory / f"{name}.answer"
        self.place.unlink(missing_ok=True)
        errors = v.directory / f"{name}.errors"
        command = ["python3", "-B", DIRECTORY / f"{name}.py", *arguments, self.place]
        with open(errors, "w") as file:
            self.child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file,
                                          start_new_session=True)
        self.pid = self.child.pid
        until(lambda: self.place.exists() or self.child.poll() is not None, f"{name} starts")
        if not self.place.exists():
            sys.exit(f"{name} ended: {errors.read_text()}")

    def ask(self, when):
        """Returns the numbers of its answer, after checking that its state is whole."""
        self.place.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        until(self.place.exists, f"an answer {when}")
        word, *rest = self.place.read_text().split(maxsplit=1)
        if word != "ok":
            sys.exit(f"its state is wrong {when}: {self.place.read_text()}")
        return [int(number) for number in rest[0].split()]

    def goes_on(self, when):
        """Checks that its state is whole and that all its numbers grow, and returns them."""
        before = self.ask(when)

        def grown():
            time.sleep(0.2)
            now = self.ask(when)
            return all(b > a for a, b in zip(before, now)) and now

        return until(grown, f"all its numbers grow {when}")

    def kill(self):
        """Ends it and all its descendants."""
        everyone = tree_of(self.pid)
        for pid in everyone:
            os.kill(pid, signal.SIGKILL)
        # Returns at once where the original process has been waited for.
        self.child.wait()
        for pid in everyone:
            gone(pid)
