//! Memory whose pages do not say whose they are: ring buffers, areas of CMA, queues of sockets, rings of io_uring.

use super::Arena;
use super::btf::{Record, member};

/// What the kernel has of it. Pages are PFNs.
#[derive(Clone, Debug, Default)]
pub struct Unmarked {
    /// Trace instances with the pages of their first CPU's ring buffer, the reader's last. The first has no name.
    pub rings: Vec<(Option<&'static str>, Vec<u64>)>,
    /// Areas of CMA: first page, pages, and which of them are allocated.
    pub cma: Vec<(&'static str, u64, u64, Vec<u64>)>,
    /// Sockets of the first process: pages of the packets in their queues.
    pub sockets: Vec<Vec<u64>>,
    /// Pages of the rings that the first process has open.
    pub io_uring: Vec<Vec<u64>>,
}

/// The structures.
pub(super) const UNMARKED: [Record; 19] = [
    ("array_buffer", 8, &[("buffer", "*trace_buffer", 0)]),
    (
        "trace_array",
        48,
        &[("list", "list_head", 0), ("name", "*char", 16), ("array_buffer", "array_buffer", 24)],
    ),
    ("trace_buffer", 16, &[("buffers", "**ring_buffer_per_cpu", 8)]),
    (
        "ring_buffer_per_cpu",
        32,
        &[("nr_pages", "u64", 0), ("pages", "*list_head", 8), ("reader_page", "*buffer_page", 16)],
    ),
    ("buffer_page", 32, &[("list", "list_head", 0), ("order", "u32", 16), ("page", "u64", 24)]),
    ("cma_memrange", 24, &[("base_pfn", "u64", 0), ("count", "u64", 8), ("bitmap", "u64", 16)]),
    (
        "cma",
        80,
        &[
            ("order_per_bit", "u32", 0),
            ("name", "[16 char]", 8),
            ("nranges", "u32", 24),
            ("ranges", "[2 cma_memrange]", 32),
        ],
    ),
    ("files_struct", 8, &[("fdt", "*fdtable", 0)]),
    ("fdtable", 16, &[("max_fds", "u32", 0), ("fd", "u64", 8)]),
    ("file", 24, &[("f_op", "u64", 0), ("f_inode", "u64", 8), ("private_data", "u64", 16)]),
    ("socket", 8, &[("sk", "*sock", 0)]),
    ("sock_common", 8, &[("skc_family", "u32", 0)]),
    (
        "sock",
        104,
        &[
            ("__sk_common", "sock_common", 0),
            ("sk_receive_queue", "sk_buff_head", 8),
            ("sk_error_queue", "sk_buff_head", 32),
            ("sk_write_queue", "sk_buff_head", 56),
        ],
    ),
    ("sk_buff_head", 24, &[("next", "*sk_buff", 0), ("prev", "*sk_buff", 8), ("qlen", "u32", 16)]),
    (
        "sk_buff",
        48,
        &[
            ("next", "*sk_buff", 0),
            ("data_len", "u32", 16),
            ("end", "u32", 20),
            ("head", "u64", 24),
            ("head_frag", "u32", 32),
        ],
    ),
    ("skb_frag", 16, &[("netmem", "u64", 0)]),
    (
        "skb_shared_info",
        48,
        &[("nr_frags", "u32", 0), ("frag_list", "*sk_buff", 8), ("frags", "[2 skb_frag]", 16)],
    ),
    ("io_mapped_region", 24, &[("pages", "u64", 0), ("nr_pages", "u32", 16)]),
    ("io_ring_ctx", 24, &[("ring_region", "io_mapped_region", 0)]),
];

/// Where the machine's pages and their struct pages are.
pub(super) struct Place {
    pub(super) direct_map: u64,
    pub(super) page_bytes: u64,
    pub(super) vmemmap: u64,
}

/// Writes it. `first` is the process that has files open.
pub(super) fn write(
    arena: &mut Arena,
    unmarked: &Unmarked,
    place: &Place,
    first: u64,
    symbols: &mut Vec<(u64, String)>,
) {
    rings(arena, unmarked, place, symbols);
    cma(arena, unmarked, symbols);
    files(arena, unmarked, place, first, symbols);
}

fn rings(arena: &mut Arena, unmarked: &Unmarked, place: &Place, symbols: &mut Vec<(u64, String)>) {
    let head = arena.record("list_head");
    symbols.push((head, "ftrace_trace_arrays".into()));
    let mut heads = vec![head];
    for (name, pages) in &unmarked.rings {
        let instance = arena.record("trace_array");
        if let Some(name) = name {
            let name = arena.text(name);
            arena.set(instance, "trace_array", "name", name);
        }
        let (buffer, of_cpu) = (arena.record("trace_buffer"), arena.record("ring_buffer_per_cpu"));
        arena.word(instance + member("trace_array", "array_buffer").0, buffer);
        // Of other CPUs there is none.
        let buffers = arena.take(64 * 8, 8);
        arena.zeros(buffers, 64 * 8);
        arena.word(buffers, of_cpu);
        arena.set(buffer, "trace_buffer", "buffers", buffers);
        let mut ring: Vec<u64> = Vec::new();
        for pfn in pages {
            let page = arena.record("buffer_page");
            arena.set(page, "buffer_page", "page", place.direct_map + pfn * place.page_bytes);
            ring.push(page);
        }
        let reader = ring.pop().expect("the reader has a page");
        arena.ring(&ring);
        // The head of the ring has a flag in what points to it.
        if let [first, .., last] = ring[..] {
            arena.word(last, first | 1);
        }
        arena.set(of_cpu, "ring_buffer_per_cpu", "nr_pages", ring.len() as u64);
        arena.set(of_cpu, "ring_buffer_per_cpu", "pages", ring[0]);
        arena.set(of_cpu, "ring_buffer_per_cpu", "reader_page", reader);
        heads.push(instance);
    }
    arena.ring(&heads);
}

fn cma(arena: &mut Arena, unmarked: &Unmarked, symbols: &mut Vec<(u64, String)>) {
    let count = arena.take(8, 8);
    arena.word(count, unmarked.cma.len() as u64);
    symbols.push((count, "cma_area_count".into()));
    let areas = arena.take(80 * unmarked.cma.len() as u64, 16);
    arena.zeros(areas, 80 * unmarked.cma.len() as u64);
    symbols.push((areas, "cma_areas".into()));
    for (number, (name, first, pages, allocated)) in unmarked.cma.iter().enumerate() {
        let area = areas + 80 * number as u64;
        arena.bytes(area + member("cma", "name").0, name.as_bytes());
        arena.set(area, "cma", "nranges", 1);
        let range = area + member("cma", "ranges").0;
        let words = pages.div_ceil(64);
        let bitmap = arena.take(8 * words, 8);
        arena.set(range, "cma_memrange", "base_pfn", *first);
        arena.set(range, "cma_memrange", "count", *pages);
        arena.set(range, "cma_memrange", "bitmap", bitmap);
        for word in 0..words {
            let bits = allocated.iter().filter(|pfn| (*pfn - first) / 64 == word);
            let bits = bits.fold(0, |bits, pfn| bits | 1 << ((pfn - first) % 64));
            arena.word(bitmap + 8 * word, bits);
        }
    }
}

fn files(
    arena: &mut Arena,
    unmarked: &Unmarked,
    place: &Place,
    first: u64,
    symbols: &mut Vec<(u64, String)>,
) {
    let operations = arena.take(16, 8);
    arena.zeros(operations, 16);
    symbols.push((operations, "socket_file_ops".into()));
    symbols.push((operations + 8, "io_uring_fops".into()));
    let struct_page = |pfn: &u64| place.vmemmap + pfn * 64;
    let mut open = Vec::new();
    for pages in &unmarked.sockets {
        let (socket, sock) = (arena.record("socket"), arena.record("sock"));
        arena.set(socket, "socket", "sk", sock);
        for queue in ["sk_receive_queue", "sk_error_queue", "sk_write_queue"] {
            let head = sock + member("sock", queue).0;
            arena.ring(&[head]);
        }
        let head = sock + member("sock", "sk_receive_queue").0;
        arena.set(head, "sk_buff_head", "qlen", pages.len() as u64);
        let mut packets = vec![head];
        for pfn in pages {
            let (packet, data) = (arena.record("sk_buff"), arena.record("skb_shared_info"));
            for (name, value) in [("head", data), ("data_len", 4096)] {
                arena.set(packet, "sk_buff", name, value);
            }
            arena.set(data, "skb_shared_info", "nr_frags", 1);
            arena.word(data + member("skb_shared_info", "frags").0, struct_page(pfn));
            packets.push(packet);
        }
        arena.ring(&packets);
        open.push((operations, socket));
    }
    for pages in &unmarked.io_uring {
        let context = arena.record("io_ring_ctx");
        let array = arena.take(8 * pages.len() as u64, 8);
        for (at, pfn) in pages.iter().enumerate() {
            arena.word(array + 8 * at as u64, struct_page(pfn));
        }
        arena.set(context, "io_mapped_region", "pages", array);
        arena.set(context, "io_mapped_region", "nr_pages", pages.len() as u64);
        open.push((operations + 8, context));
    }
    let (table, files) = (arena.record("fdtable"), arena.record("files_struct"));
    let descriptors = arena.take(8 * open.len() as u64, 8);
    for (at, (operations, private)) in open.iter().enumerate() {
        let file = arena.record("file");
        arena.set(file, "file", "f_op", *operations);
        arena.set(file, "file", "private_data", *private);
        arena.word(descriptors + 8 * at as u64, file);
    }
    arena.set(table, "fdtable", "max_fds", open.len() as u64);
    arena.set(table, "fdtable", "fd", descriptors);
    arena.set(files, "files_struct", "fdt", table);
    arena.set(first, "task_struct", "files", files);
}
