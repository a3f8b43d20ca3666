"""Counts the pages of a crashed machine with drgn and the kernel's debug symbols, page by page, for comparison with the rows of
`pagehaul pages --owners`."""

from collections import Counter

from drgn import cast
from drgn.helpers.linux.bpf import bpf_map_for_each
from drgn.helpers.linux.kallsyms import load_module_kallsyms
from drgn.helpers.linux.mm import (
    PageHead,
    PageHWPoison,
    PageReserved,
    PageSlab,
    PageTail,
    compound_order,
    for_each_valid_page_range,
    for_each_vmap_area,
)
from percpulists import per_cpu_pages

ANON, FLAGS = 1, 3
VM_ALLOC = 2
KERNEL = 1 << 63


class PageType:
    """How the kernel marks pages that are in no address space."""

    def __init__(self, prog):
        try:
            # 4ffca5a96678 (6.12).
            numbers = {name: prog.constant(f"PGTY_{name}").value_() for name in ("buddy", "table", "hugetlb")}
            self.is_type = lambda word, name: word >> 24 == numbers[name]
            self.has_hugetlb = True
        except LookupError:
            # Bits that are cleared: 5.11 removed one below that of tables.
            moved = prog.type("struct page").has_member("memcg_data")
            bits = {"buddy": 0x80, "table": 0x200 if moved else 0x400}
            self.is_type = lambda word, name: word >> 28 == 0xF and not word & bits[name]
            self.has_hugetlb = False
            self.destructor = prog.constant("HUGETLB_PAGE_DTOR").value_()

    def is_hugetlb(self, page, word):
        if self.has_hugetlb:
            return self.is_type(word, "hugetlb")
        return PageHead(page) and page[1].compound_dtor.value_() == self.destructor


class Counted:
    """Pages by kind, and by owner."""

    def __init__(self, prog):
        self.kinds, self.slab, self.files, self.vmalloc = Counter(), Counter(), Counter(), Counter()
        self.lists = len(per_cpu_pages(prog))
        types = PageType(prog)
        for start, end, pages in for_each_valid_page_range(prog):
            pfn = start
            while pfn < end:
                pfn += self.count(prog, types, pages + pfn)
        self.areas(prog)

    def count(self, prog, types, page):
        """Counts the block that starts with a page, and returns its pages."""
        word = page._mapcount.counter.value_() & 0xFFFFFFFF
        if PageReserved(page):
            self.kinds["reserved"] += 1
            return 1
        if PageHWPoison(page):
            self.kinds["hardware poison"] += 1
            return 1
        if types.is_type(word, "buddy"):
            pages = 1 << page.private.value_()
            self.kinds["free"] += pages
            return pages
        pages = 1 << compound_order(page).value_() if PageHead(page) else 1
        mapping = page.mapping.value_()
        if PageSlab(page):
            slab = page if page.type_.type.has_member("slab_cache") else cast("struct slab *", page)
            self.slab[slab.slab_cache.name.string_().decode()] += pages
            self.kinds["slab"] += pages
        elif types.is_type(word, "table"):
            self.kinds["page_tables"] += pages
        elif types.is_hugetlb(page, word):
            self.kinds["huge_tlb"] += pages
        elif word >> 31 and word != 0xFFFFFFFF:
            self.kinds["other types"] += pages
        elif mapping & ANON and mapping & FLAGS != 2:
            self.kinds["anonymous"] += pages
        elif mapping >= KERNEL and not mapping & 7 and not PageTail(page):
            self.file(page.mapping, pages)
        else:
            self.kinds["rest"] += pages
        return pages

    def file(self, mapping, pages):
        try:
            inode = mapping.host.read_()
            known = inode.i_mapping == mapping or inode.i_data.address_of_() == mapping
            name = (inode.i_sb.s_id.string_().decode(errors="replace"), inode.i_ino.value_()) if known else None
        except Exception:
            # Not an address space: another user of the word.
            name = None
        if name is None:
            self.kinds["rest"] += pages
            return
        self.kinds["files"] += pages
        self.files[name] += pages

    def areas(self, prog):
        """Counts areas by caller, and those that a map is in by the map: an array is in its area, as the scenario has one."""
        prog.register_symbol_finder("modules", load_module_kallsyms(prog), enable_index=-1)
        maps = {each.value_(): f"BPF map {each.name.string_().decode()}/{each.id.value_()}" for each in bpf_map_for_each(prog)}
        for area in for_each_vmap_area(prog):
            vm = area.vm
            if not vm or not vm.pages or not vm.flags & VM_ALLOC:
                continue
            first, end = area.va_start.value_(), area.va_end.value_()
            owner = next((name for at, name in maps.items() if first <= at < end), None)
            self.vmalloc[owner or prog.symbol(vm.caller).name] += vm.nr_pages.value_()


def compare(report, prog, row):
    """Compares rows and the largest owners, by `row(what, same, total)`."""
    counted = Counted(prog)
    rows = {each["kind"]: each for each in report["rows"]}
    pages = lambda *kinds: sum(rows[kind]["pages"] for kind in kinds if kind in rows)
    outside = sum(each["pages"] for each in report["outside"] if each["name"] == "reserved")
    kinds = counted.kinds
    for what, ours, theirs in [
        ("balance: free", pages("free"), kinds["free"]),
        ("balance: free, per-CPU lists", pages("per_cpu_lists"), counted.lists),
        ("balance: anonymous", pages("anonymous"), kinds["anonymous"]),
        ("balance: files and tmpfs", pages("file", "shmem"), kinds["files"]),
        ("balance: huge pages", pages("huge_tlb"), kinds["huge_tlb"]),
        ("balance: slab", pages("slab"), kinds["slab"]),
        ("balance: vmalloc and stacks", pages("vmalloc", "kernel_stacks"), sum(counted.vmalloc.values())),
        ("balance: reserved", outside, kinds["reserved"]),
    ]:
        print(f"     {what}: {ours} pages, drgn {theirs}")
        row(what, int(ours == theirs), 1)
    owned = [(owner["name"], owner["pages"], counted.slab) for owner in rows["slab"]["owners"]]
    files = [owner for kind in ("file", "shmem") for owner in rows.get(kind, {"owners": []})["owners"]]
    by_file = Counter()
    for owner in files:
        if "inode" in owner:
            # Every tmpfs has the same name, and inodes of its own.
            by_file[owner["device"], owner["inode"]] += owner["pages"]
    owned += [(name, pages, counted.files) for name, pages in by_file.items()]
    function = lambda name: name if name.startswith("BPF map ") else name.split(" ")[0]
    owned += [(function(owner["name"]), owner["pages"], counted.vmalloc) for owner in rows["vmalloc"]["owners"]]
    for what, table in [("slab caches", counted.slab), ("files", counted.files), ("vmalloc callers", counted.vmalloc)]:
        named = [(name, count) for name, count, of in owned if of is table]
        same = sum(table[name] == count for name, count in named)
        for name, count in named:
            if table[name] != count:
                print(f"     {what}: {name}: {count} pages, drgn {table[name]}")
        row(f"balance: {what}", same, len(named))
