"""epoll with a periodic timerfd, an eventfd, a pipe (edge-triggered), a pair of UNIX sockets, a signalfd and an inotify descriptor.

Usage: events.py DIRECTORY ANSWER

What goes through the pipe, the sockets and the queue of signals is numbered, and no number may be missing. CRIU drops inotify events that
were not read: their numbers have to grow.
"""

import ctypes
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

from answers import Answers

LIBC = ctypes.CDLL(None, use_errno=True)
CLOCK_MONOTONIC, NONBLOCK, IN_CREATE = 1, os.O_NONBLOCK, 0x100
# A real-time signal: each one that is sent is queued, with its number.
NUMBERED = signal.SIGRTMIN + 1
EVERY_NS = 20_000_000
SIGINFO = 128
"""Bytes of struct signalfd_siginfo."""
SIGINFO_INT = 44
"""Offset of ssi_int in it."""


class TimerSpec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


def opened(fd):
    if fd < 0:
        raise OSError(ctypes.get_errno(), "a descriptor of events")
    return fd


class Events:
    def __init__(self, directory):
        self.directory = directory
        self.timer = opened(LIBC.timerfd_create(CLOCK_MONOTONIC, NONBLOCK))
        assert LIBC.timerfd_settime(self.timer, 0, ctypes.byref(TimerSpec(0, EVERY_NS, 0, EVERY_NS)), None) == 0
        self.event = os.eventfd(0, os.EFD_NONBLOCK)
        self.source, self.sink = os.pipe2(NONBLOCK)
        self.left, self.right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Threads that are started later inherit it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {NUMBERED})
        mask = ctypes.c_uint64(1 << (NUMBERED - 1))
        self.signals = opened(LIBC.signalfd(-1, ctypes.byref(mask), NONBLOCK))
        self.inotify = opened(LIBC.inotify_init1(NONBLOCK))
        opened(LIBC.inotify_add_watch(self.inotify, os.fsencode(directory), IN_CREATE))
        self.epoll = select.epoll()
        for fd in (self.timer, self.event, self.right.fileno(), self.signals, self.inotify):
            self.epoll.register(fd, select.EPOLLIN)
        self.epoll.register(self.source, select.EPOLLIN | select.EPOLLET)
        self.counts = dict.fromkeys(("timer", "event", "pipe", "socket", "signal", "file"), 0)
        self.wrong = []

    def feed(self):
        number = 0
        while True:
            os.eventfd_write(self.event, 1)
            os.write(self.sink, struct.pack("Q", number))
            self.left.send(struct.pack("Q", number))
            # By glibc's sigqueue, whose value is a union of the size of a pointer.
            LIBC.sigqueue(os.getpid(), int(NUMBERED), ctypes.c_void_p(number))
            path = os.path.join(self.directory, str(number + 1))
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            os.unlink(path)
            number += 1
            time.sleep(0.01)

    def expect(self, what, found):
        if found != self.counts[what]:
            self.wrong.append((what, self.counts[what], found))
        self.counts[what] += 1

    def read_all(self, fd, size):
        while True:
            try:
                yield os.read(fd, size)
            except BlockingIOError:
                return

    def take(self, fd):
        """Reads what a descriptor has."""
        if fd == self.timer:
            self.counts["timer"] += struct.unpack("Q", os.read(self.timer, 8))[0]
        elif fd == self.event:
            self.counts["event"] += os.eventfd_read(self.event)
        elif fd == self.source:
            for data in self.read_all(self.source, 8):
                self.expect("pipe", struct.unpack("Q", data)[0])
        elif fd == self.signals:
            for data in self.read_all(self.signals, SIGINFO):
                self.expect("signal", struct.unpack_from("i", data, SIGINFO_INT)[0])
        elif fd == self.inotify:
            for data in self.read_all(self.inotify, 4096):
                self.files(data)
        else:
            self.expect("socket", struct.unpack("Q", self.right.recv(100))[0])

    def files(self, data):
        at = 0
        while at < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16:at + 16 + length].rstrip(b"\0")
            at += 16 + length
            if mask != IN_CREATE or int(name) <= self.counts["file"]:
                self.wrong.append(("file", self.counts["file"], mask, name))
            else:
                self.counts["file"] = int(name)


def main():
    answers = Answers(sys.argv[2])
    events = Events(sys.argv[1])
    threading.Thread(target=events.feed, daemon=True).start()
    answers.write("ready")
    while True:
        for fd, _ in events.epoll.poll(0.1):
            events.take(fd)
        if answers.was_asked():
            answers.state(events.counts.values(), events.wrong)


main()
