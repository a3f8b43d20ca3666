//! A small writer of dumps, made of the crate's writer side, and files in memory.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pagehaul_codec::{Codec, Compressor};
use pagehaul_kdump::format::{FLAT_INDEX_SIGNATURE, FlatIndex, VERSION, flags};
use pagehaul_kdump::{Header, KdumpFile, Layout, PageDesc, UtsName};
use pagehaul_machine::PageSize;
use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::ReadAt;
use zerocopy::IntoBytes;

pub const PAGE: usize = 4096;

/// A file in memory.
pub struct MemFile(pub Vec<u8>);

impl ReadAt for MemFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Some(rest) = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)) else { return Ok(0) };
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn path(&self) -> &Path {
        Path::new("dump")
    }

    fn identity(&self) -> (u64, u64) {
        (1, self.0.as_ptr().addr() as u64)
    }
}

/// Returns a flattened stream up to its terminator.
pub fn without_index(mut stream: Vec<u8>) -> Vec<u8> {
    let index = stream.len() - size_of::<FlatIndex>();
    assert!(stream[index..].starts_with(&FLAT_INDEX_SIGNATURE));
    let count = u64::from_be_bytes(stream[index + 24..index + 32].try_into().unwrap());
    stream.truncate(index - 16 * count as usize);
    stream
}

/// A file in the memory of a server.
#[derive(Clone)]
pub struct Server {
    bytes: Arc<Vec<u8>>,
    /// Offsets of reads that were not announced.
    pub late: Arc<Mutex<Vec<u64>>>,
    /// What was announced, together each time.
    pub announced: Arc<Mutex<Vec<Vec<Range<u64>>>>>,
}

impl Server {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(bytes), late: Arc::default(), announced: Arc::default() }
    }
}

impl ReadAt for Server {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let announced = self.announced.lock().unwrap();
        let end = offset.saturating_add(buf.len() as u64).min(self.size());
        if !announced.iter().flatten().any(|range| range.start <= offset && end <= range.end) {
            self.late.lock().unwrap().push(offset);
        }
        MemFile(self.bytes.to_vec()).read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn path(&self) -> &Path {
        Path::new("dump")
    }

    fn identity(&self) -> (u64, u64) {
        (1, 2)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        self.announced.lock().unwrap().push(ranges.to_vec());
    }
}

pub fn open(bytes: Vec<u8>) -> Result<KdumpFile, OpenError> {
    KdumpFile::open(Box::new(MemFile(bytes)))
}

/// What a dump is made of.
#[derive(Clone)]
pub struct Spec {
    pub max_mapnr: u64,
    /// PFNs that exist and are not dumped.
    pub ram: Vec<Range<u64>>,
    /// Dumped pages and how they are stored.
    pub pages: BTreeMap<u64, (Codec, Vec<u8>)>,
    pub notes: Vec<u8>,
    pub incomplete: bool,
    pub split: Option<Range<u64>>,
    /// Page data from the last page to the first.
    pub reversed: bool,
}

impl Spec {
    pub fn new(max_mapnr: u64) -> Self {
        Self {
            max_mapnr,
            ram: Vec::new(),
            pages: BTreeMap::new(),
            notes: vmcoreinfo_note(b"OSRELEASE=6.12.1-test\nPAGESIZE=4096\n"),
            incomplete: false,
            split: None,
            reversed: false,
        }
    }

    pub fn layout(&self) -> Layout {
        Layout::new(PageSize::KIB_4, self.max_mapnr, self.notes.len() as u64).unwrap()
    }

    /// The pages of this part.
    fn own(&self) -> Vec<u64> {
        let part = self.split.clone().unwrap_or(0..self.max_mapnr);
        self.pages.range(part).map(|(&pfn, _)| pfn).collect()
    }

    pub fn build(&self) -> Vec<u8> {
        let layout = self.layout();
        let header = Header {
            uts: UtsName { nodename: "crashed".into(), ..UtsName::x86_64("6.12.1-test") },
            crash_time: 1_700_000_000,
            dump_level: 31,
            nr_cpus: 2,
            phys_base: 0x100_0000,
            codec: flags::LZO,
            notes: &self.notes,
            split: self.split.clone(),
        };
        let mut out = header.encode(&layout, self.incomplete).unwrap();
        let own = self.own();
        let data_at = layout.data_offset(own.len() as u64).unwrap() as usize;
        out.resize(data_at, 0);
        let mut set = |bitmap: u64, pfn: u64| out[bitmap as usize + pfn as usize / 8] |= 1 << (pfn % 8);
        for pfn in self.ram.iter().cloned().flatten().chain(self.pages.keys().copied()) {
            set(layout.bitmap1_offset(), pfn);
        }
        for &pfn in self.pages.keys() {
            set(layout.bitmap2_offset(), pfn);
        }
        // The shared page of zeros is there whether used or not.
        out.extend([0; PAGE]);
        let mut order: Vec<usize> = (0..own.len()).collect();
        if self.reversed {
            order.reverse();
        }
        for rank in order {
            let (codec, page) = &self.pages[&own[rank]];
            let desc = if page.iter().all(|&byte| byte == 0) {
                PageDesc::new(layout.zero_page_offset(own.len() as u64).unwrap(), PAGE as u32, 0)
            } else {
                let (flag, bytes) = encode(*codec, page);
                let desc = PageDesc::new(out.len() as u64, bytes.len() as u32, flag);
                out.extend(bytes);
                desc
            };
            let at = layout.descriptor_offset(rank as u64) as usize;
            out[at..at + PageDesc::SIZE].copy_from_slice(desc.as_bytes());
        }
        out
    }
}

/// A page as it goes into a dump; raw if the codec does not shrink it.
pub fn encode(codec: Codec, page: &[u8]) -> (u32, Vec<u8>) {
    let flag = match codec {
        Codec::None => return (0, page.to_vec()),
        Codec::Zlib => flags::ZLIB,
        Codec::Lzo => flags::LZO,
        Codec::Snappy => flags::SNAPPY,
        Codec::Zstd => flags::ZSTD,
    };
    let mut compressor = Compressor::new(codec.name().parse().unwrap()).unwrap();
    let mut out = vec![0; 2 * PAGE];
    match compressor.compress(page, &mut out) {
        Some(size) if size < PAGE => (flag, out[..size].to_vec()),
        _ => (0, page.to_vec()),
    }
}

/// A page with content that compresses, and differs for each `seed`; all zeros for seed 0.
pub fn page(seed: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE);
    for index in 0..PAGE as u64 / 8 {
        out.extend(
            (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) & if index % 3 == 0 { !0 } else { 0xff }).to_le_bytes(),
        );
    }
    out
}

/// A page that no codec shrinks.
pub fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..PAGE).map(|_| step()).collect()
}

pub fn vmcoreinfo_note(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [11, text.len() as u32, 0] {
        out.extend(u32::to_le_bytes(word));
    }
    for part in [b"VMCOREINFO\0".as_slice(), text] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

/// The same dump as an older writer would have left it: fields that came later are zero.
pub fn downgrade(mut dump: Vec<u8>, version: i32) -> Vec<u8> {
    assert!((1..VERSION).contains(&version));
    dump[8..12].copy_from_slice(&version.to_le_bytes());
    let sub = match version {
        1 => 12,
        2 => 32,
        3 => 48,
        4 => 64,
        _ => 80,
    };
    dump[PAGE + sub..PAGE + 104].fill(0);
    dump
}

/// A dump with a page of each codec, zeros, a raw one, holes and excluded pages.
pub fn mixed() -> Spec {
    let mut spec = Spec::new(40_000);
    spec.ram = vec![1..0x9f, 0x100..0x900, 0x8000..0x9000];
    for (index, codec) in Codec::ALL.into_iter().cycle().take(600).enumerate() {
        let pfn = 0x100 + 3 * index as u64;
        let contents = match index % 7 {
            0 => vec![0; PAGE],
            1 => noise(pfn),
            _ => page(pfn),
        };
        spec.pages.insert(pfn, (codec, contents));
    }
    spec.pages.insert(0x9f, (Codec::Zstd, page(7)));
    spec.pages.insert(39_999, (Codec::Snappy, page(8)));
    spec
}
