"""Two processes with a TCP connection over the loopback interface. Usage: tcp.py ANSWER

The first sends numbers without waiting, and the second sends each back; none may be missing. So there are bytes in the queues of both
sockets.
"""

import os
import selectors
import signal
import socket
import struct
import sys
import time

from answers import Answers

AHEAD = 500
"""Numbers that are on their way at most."""
SIZE = 64
"""Bytes of a number: it is sent 8 times."""


def record(number):
    return struct.pack("Q", number) * (SIZE // 8)


def send_back(link):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    while data := link.recv(1000):
        # Slower than the first one, so that the queues stay full.
        time.sleep(0.01)
        link.sendall(data)
    os._exit(0)


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    if os.fork() == 0:
        listener.close()
        send_back(socket.create_connection(address))
    link = listener.accept()[0]
    listener.close()
    link.setblocking(False)
    answers = Answers(sys.argv[1])
    ready = selectors.DefaultSelector()
    ready.register(link, selectors.EVENT_READ | selectors.EVENT_WRITE)
    sent, received, unsent, held, wrong = 0, 0, b"", b"", []
    answers.write("ready")
    while True:
        if not unsent and sent - received < AHEAD:
            unsent = record(sent)
            sent += 1
        # Without anything to send it waits for what comes back.
        ready.modify(link, selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0))
        for _, events in ready.select(0.1):
            if events & selectors.EVENT_WRITE:
                unsent = unsent[link.send(unsent):]
            if events & selectors.EVENT_READ:
                data = link.recv(4096)
                if not data:
                    sys.exit("the connection was closed")
                held += data
        while len(held) >= SIZE:
            if held[:SIZE] != record(received):
                wrong.append((received, held[:16]))
            held = held[SIZE:]
            received += 1
        if answers.was_asked():
            answers.state([sent, received], wrong)


main()
