import os
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type, Union, overload

PAGE_CLASSES: Tuple[str, ...]
"""Names of the page classes; the bytes of a page map are indexes of it."""
__version__: str

def _reclaim_json(path: Union[str, os.PathLike[str]], label: Optional[str]) -> str: ...
def _latency_json(
    path: Union[str, os.PathLike[str]],
    functions: List[str],
    between: Optional[Tuple[str, str]],
    key: str,
    by_function: bool,
) -> str: ...

class Table:
    """A table. `pyarrow.table(t)`, `polars.DataFrame(t)` and DuckDB take it as it is."""

    @property
    def columns(self) -> List[str]:
        """Names of the columns."""
    def __len__(self) -> int: ...
    def rows(self) -> List[Dict[str, Any]]:
        """Returns a dict for each row, for programs without an Arrow library."""
    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

class PageMap:
    """The class of each page, one byte a page, by PFN. PAGE_CLASSES has the names.

    `numpy.asarray(m)` has the bytes, `pyarrow.array(m)` the names; neither copies.
    """

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, pfn: int) -> str:
        """Returns the name of the class of the page with this PFN."""
    @overload
    def __getitem__(self, pfn: slice) -> PageMap:
        """Returns the map of the pages of a slice, whose first page has the index 0. Without a step, nothing is copied."""
    def __iter__(self) -> Iterator[str]: ...
    @property
    def __array_interface__(self) -> Dict[str, Any]: ...
    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> Tuple[object, object]: ...

class SegmentReader:
    """The read_fn of drgn.Program.add_memory_segment()."""

    def __call__(self, address: int, count: int, offset: int, physical: bool) -> bytes: ...

class Dump:
    def __init__(self, *paths: Union[str, os.PathLike[str]], cache_bytes: int = ...) -> None: ...
    @property
    def paths(self) -> List[Union[str, os.PathLike[str]]]:
        """The files. URLs are strings, without their queries, which may hold signatures."""
    @property
    def format(self) -> str:
        """The format: "elf", "kdump", "flattened", "split" or "image"."""
    @property
    def level(self) -> Optional[int]:
        """The dump level, 0 to 31; None for ELF files, which do not have it."""
    @property
    def machine(self) -> str:
        """What `uname -m` calls the machine."""
    @property
    def page_size(self) -> int:
        """Bytes of a page."""
    @property
    def pointer_size(self) -> int:
        """Bytes of a pointer."""
    @property
    def byte_order(self) -> str:
        """ "little" or "big"."""
    @property
    def warnings(self) -> List[str]:
        """What is wrong with the dump as a whole, one sentence each: it is truncated, incomplete, or lacks parts."""
    @property
    def ranges(self) -> List[Tuple[int, int]]:
        """Ranges of physical memory, excluded pages included: first address, and first address after."""
    @property
    def vmcoreinfo_text(self) -> Optional[bytes]:
        """The text of VMCOREINFO; None if the notes have none."""
    @property
    def vmcoreinfo(self) -> Dict[str, str]:
        """The lines of VMCOREINFO: keys and values."""
    @property
    def crash_id(self) -> str:
        """Identifies the crash: all dumps of a crash have the same."""
    @property
    def closed(self) -> bool:
        """Whether the dump is closed."""
    def close(self) -> None:
        """Closes the files. Calls of other threads go on to their end. Closing again does nothing."""
    def read(self, address: int, size: int, *, physical: bool) -> bytes:
        """Reads memory at a physical address, or with physical=False at a kernel virtual address. The word is that of drgn's
        `Program.read()`; here there is no default.

        Raises NotPresent, NotInDump, Missing or Damaged, all of which are ReadErrors, at the first unavailable byte. A negative
        address is InvalidAddress, which is one, too.
        """
    def translate(self, address: int) -> int:
        """Returns the physical address of a kernel virtual address."""
    def has_page_tables(self) -> bool:
        """Returns whether the kernel's page tables were found, which virtual addresses need."""
    def log(self) -> Table:
        """Returns the kernel log: seq, time_ns, level, facility, task, cpu and text of each record."""
    def page_map(self) -> PageMap:
        """Returns the class of each page, from the kernel's struct pages."""
    def page_classes(self) -> Table:
        """Returns the number of pages of each class, and how many of them the dump holds."""
    def zones(self) -> Table:
        """Returns the number of pages of each class in each zone of each node."""
    def _notes(self) -> List[Tuple[str, int, bytes]]: ...
    def _registers(self) -> List[Tuple[int, int, List[Tuple[str, int]]]]: ...
    def _facts_json(self) -> str: ...
    def _triage_json(self, stacks: bool) -> str: ...
    def _segment_reader(self, fault: Type[BaseException], kernel: bool) -> SegmentReader: ...
