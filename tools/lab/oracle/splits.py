"""Reads split sets with libkdumpfile through its C API, since drgn does not open them. The library comes with drgn."""

import ctypes
import os
import pathlib

import drgn

MACHINE_PHYSICAL = 1
"""KDUMP_MACHPHYSADDR of libkdumpfile's kdump_addrspace_t."""


class FileSet:
    """A split set of the parts at `paths`, in this order."""

    def __init__(self, paths):
        self.library = ctypes.CDLL(str(bundled()))
        context, number = ctypes.c_void_p, ctypes.c_uint64
        self.library.kdump_new.restype = context
        self.library.kdump_get_err.restype = ctypes.c_char_p
        self.library.kdump_get_err.argtypes = [context]
        self.library.kdump_open_fdset.argtypes = [context, ctypes.c_uint, ctypes.POINTER(ctypes.c_int)]
        self.library.kdump_read.argtypes = [context, ctypes.c_int, number, ctypes.c_void_p, ctypes.c_void_p]
        self.library.kdump_free.argtypes = [context]
        self.files = [os.open(path, os.O_RDONLY) for path in paths]
        self.context = self.library.kdump_new()
        files = (ctypes.c_int * len(self.files))(*self.files)
        if self.library.kdump_open_fdset(self.context, len(self.files), files):
            raise SystemExit(f"libkdumpfile cannot use {paths}: {self.library.kdump_get_err(self.context).decode()}")

    def page(self, pfn, size):
        """Returns the page's bytes, or None if it is excluded or unreadable."""
        buffer, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
        status = self.library.kdump_read(self.context, MACHINE_PHYSICAL, pfn * size, buffer, ctypes.byref(length))
        return buffer.raw if status == 0 else None

    def close(self):
        self.library.kdump_free(self.context)
        for file in self.files:
            os.close(file)


def bundled():
    """Returns the path of the library in drgn's wheel."""
    directory = pathlib.Path(drgn.__file__).parent.parent / "drgn.libs"
    return next(directory.glob("libkdumpfile-*"))


def compare(paths, kept, raw):
    """Returns descriptions of kept pages that differ from the raw vmcore, and of readable excluded pages."""
    files = FileSet(paths)
    wrong = []
    for pfn, is_kept in enumerate(kept.tolist()):
        found = files.page(pfn, raw.page)
        if is_kept and found != raw.read(pfn):
            wrong.append(f"PFN {pfn:#x} {'is missing' if found is None else 'has other contents'}")
        elif not is_kept and found is not None:
            wrong.append(f"PFN {pfn:#x} is excluded, but readable")
    files.close()
    return wrong
