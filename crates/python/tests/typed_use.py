"""Use of the package, which `mypy --strict` checks and nothing runs."""

from typing import Any, Dict, Iterator

import pagehaul
import pagehaul.drgn
import pagehaul.fleet
import pyarrow

with pagehaul.open("dump") as dump:
    name: str = dump.page_map()[3]
    some: pagehaul.PageMap = dump.page_map()[3:4]
    names = [name.upper() for name in some]
    contents: bytes = dump.read(0x1000, 8, physical=True)
    size: int = dump.readinto(0x1000, bytearray(8), physical=False)
    crash_id: str = dump.crash_id


@pagehaul.fleet.table(pyarrow.schema([("size", pyarrow.int64())]))
def sizes(dump: pagehaul.Dump) -> Iterator[Dict[str, Any]]:
    yield {"size": dump.page_size}


row: pagehaul.fleet.Row = pagehaul.fleet.extract("dump", to="tables", only=["dumps"], tables=[sizes, "module:function"])
reasons = [missing.reason for missing in row.missing]
try:
    pagehaul.open("part.0", "part.1")
except pagehaul.OpenError as why:
    print(why.errno, why.filename)
prog = pagehaul.drgn.program("part.0", "part.1")
