# A process with touched memory, for guest.py: subject.py MIB PAGES READY waits for a signal once its number is in the file READY;
# subject.py MIB PAGES prints how many seconds copies of the memory take, by this process and by the kernel. PAGES: huge or small.
import ctypes
import mmap
import os
import random
import signal
import sys
import time

MIB = 1 << 20
size = int(sys.argv[1]) * MIB
advice = mmap.MADV_HUGEPAGE if sys.argv[2] == "huge" else mmap.MADV_NOHUGEPAGE


def reserve():
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    return memory


def content():
    """4 MiB, more than zstd remembers at level 3: 40 % random bytes, 40 % text, 20 % zeros."""
    number = random.Random(26)
    pages = []
    for page in range(4 * MIB // 4096):
        if page % 5 < 2:
            pages.append(number.randbytes(4096))
        elif page % 5 < 4:
            lines = (f"{page * 70 + n} GET /item/{number.randrange(10**6)} from 10.0.{n}.7\n" for n in range(130))
            pages.append("".join(lines).encode()[:4096])
        else:
            pages.append(bytes(4096))
    return b"".join(pages)


memory = reserve()
block = content()
for start in range(0, size, len(block)):
    memory[start : start + len(block)] = block[: size - start]


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def by_kernel(target):
    """Copies as the handler does, on one thread. Up to 2 GiB go in one call."""
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    address = lambda of: ctypes.addressof(ctypes.c_char.from_buffer(of))
    to, source, done = address(target), address(memory), 0
    while done < size:
        length = min(size - done, 1 << 30)
        vectors = Vector(to + done, length), Vector(source + done, length)
        count = read(os.getpid(), ctypes.byref(vectors[0]), 1, ctypes.byref(vectors[1]), 1, 0)
        if count <= 0:
            sys.exit(f"process_vm_readv: {os.strerror(ctypes.get_errno())}")
        done += count


def by_process(target):
    target[:] = memory


def seconds(copy, target):
    start = time.monotonic()
    copy(target)
    return time.monotonic() - start


if len(sys.argv) > 3:
    with open(sys.argv[3] + ".new", "w") as ready:
        ready.write(str(os.getpid()))
    os.rename(sys.argv[3] + ".new", sys.argv[3])
    while True:
        signal.pause()
target = reserve()
fresh = seconds(by_process, target)
touched = seconds(by_process, target)
target.close()
print(fresh, touched, seconds(by_kernel, reserve()))
