//! A process's memory: saved as CRIU does, which asks the kernel for pages by PAGEMAP_SCAN, and as the kernel's older
//! interface has it, to compare.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Names of the images, with a process's number for PID.
pub const LIST: &str = "pagemap-PID.img";
pub const PAGES: &str = "pages-2.img";
const PAGE: u64 = 4096;
/// Magic numbers and a head.
const HEAD: [u8; 14] = [0x19, 0x43, 0x56, 0x54, 0x29, 0x24, 0x08, 0x56, 2, 0, 0, 0, 8, 2];

/// `PTRACE_SEIZE` of the process, which fails for its options: the call alone says that the freeze begins.
pub fn announce_freeze(pid: i32) {
    // SAFETY: numbers only.
    unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, usize::MAX) };
}

/// Returns the list of a frozen process's pages and the pages, and writes the memory to a file: addresses and pages.
pub fn save(pid: i32, path: &Path) -> (Vec<u8>, Vec<u8>) {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let page = |address: u64| {
        let mut bytes = vec![0; PAGE as usize];
        memory.read_exact_at(&mut bytes, address).unwrap();
        bytes
    };
    let (mut list, mut pages, mut all) = (HEAD.to_vec(), Vec::new(), Vec::new());
    flags(pid);
    guards(&pagemap);
    for mapping in mappings(pid) {
        for region in scan(&pagemap, &mapping) {
            entry(&mut list, &region);
            region.step_by(PAGE as usize).for_each(|address| pages.extend(page(address)));
        }
        let mut entries = vec![0; ((mapping.end - mapping.start) / PAGE * 8) as usize];
        pagemap.read_exact_at(&mut entries, mapping.start / PAGE * 8).unwrap();
        for (address, entry) in mapping.step_by(PAGE as usize).zip(entries.as_chunks::<8>().0) {
            // In memory or swapped out, and not a file's (bit 61).
            let entry = u64::from_le_bytes(*entry);
            if entry >> 62 != 0 && entry >> 61 & 1 == 0 {
                all.extend(address.to_le_bytes());
                all.extend(page(address));
            }
        }
    }
    fs::write(path, all).unwrap();
    (list, pages)
}

/// Returns where images differ from the memory that was written to a file.
pub fn differences(path: &Path, list: &[u8], pages: &[u8]) -> Vec<String> {
    let mut found = BTreeMap::new();
    let (mut rest, mut pages) = (&list[HEAD.len()..], pages.chunks(PAGE as usize));
    let mut last = 0;
    while let Some((length, after)) = rest.split_first_chunk() {
        let (mut entry, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        rest = after;
        let mut fields = [0; 6];
        while !entry.is_empty() {
            let key = number(&mut entry);
            fields[key as usize >> 3] = number(&mut entry);
        }
        assert!(fields[1] >= last, "the list is out of order at {:#x}", fields[1]);
        last = fields[1] + fields[5] * PAGE;
        for address in (fields[1]..last).step_by(PAGE as usize) {
            found.insert(address, pages.next().expect("fewer pages than listed"));
        }
    }
    assert!(pages.next().is_none(), "more pages than listed");
    let mut all = Vec::new();
    File::open(path).unwrap().read_to_end(&mut all).unwrap();
    let mut differences = Vec::new();
    for record in all.chunks(8 + PAGE as usize) {
        let (address, expected) = record.split_first_chunk::<8>().unwrap();
        let address = u64::from_le_bytes(*address);
        // The page of zeros need not be there.
        let page = found.remove(&address).unwrap_or(&[0; PAGE as usize]);
        if let Some(at) = page.iter().zip(expected).position(|(one, other)| one != other) {
            let (one, other) = (&page[at..], &expected[at..]);
            let [one, other] = [one, other].map(|bytes| &bytes[..bytes.len().min(8)]);
            differences.push(format!("at {:#x} is {one:x?} instead of {other:x?}", address + at as u64));
        }
    }
    differences.extend(found.keys().map(|address| format!("there was no page at {address:#x}")));
    differences
}

/// Private mappings.
fn mappings(pid: i32) -> Vec<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let private =
        maps.lines().filter(|line| line.split(' ').nth(1).unwrap().ends_with('p') && !line.contains("[v"));
    let hex = |text| u64::from_str_radix(text, 16).unwrap();
    let ranges = private.map(|line| line.split(' ').next().unwrap().split_once('-').unwrap());
    ranges.map(|(start, end)| hex(start)..hex(end)).collect()
}

/// Reads the flags of mappings as CRIU does, by a file in the open directory of the process.
fn flags(pid: i32) {
    let directory = File::open(format!("/proc/{pid}")).unwrap();
    // SAFETY: a new descriptor, of a file whose name ends as it should.
    let mut smaps = unsafe {
        let file = libc::openat(directory.as_raw_fd(), c"smaps".as_ptr(), libc::O_RDONLY);
        assert!(file >= 0, "smaps");
        File::from_raw_fd(file)
    };
    let mut text = Vec::new();
    smaps.read_to_end(&mut text).unwrap();
    assert!(text.windows(9).any(|part| part == b"VmFlags: "), "no flags");
}

/// The pages that CRIU saves.
fn scan(pagemap: &File, mapping: &Range<u64>) -> Vec<Range<u64>> {
    const PRESENT_OR_SWAPPED: u64 = 1 << 3 | 1 << 4;
    const ZERO_OR_FILE: u64 = 1 << 5 | 1 << 2;
    let found =
        ask(pagemap, mapping.clone(), [ZERO_OR_FILE, ZERO_OR_FILE, PRESENT_OR_SWAPPED, PRESENT_OR_SWAPPED]);
    found.expect("PAGEMAP_SCAN").into_iter().map(|[start, end, _]| start..end).collect()
}

/// Asks for guard regions in all memory, as CRIU does since 4.2. None before Linux 6.15, which does not know them.
fn guards(pagemap: &File) -> Vec<[u64; 3]> {
    const GUARD: u64 = 1 << 8;
    let found = ask(pagemap, 0..1 << 46, [0, GUARD, 0, GUARD]).unwrap_or_default();
    assert!(found.iter().all(|[.., categories]| *categories == GUARD), "no guards: {found:x?}");
    found
}

/// PAGEMAP_SCAN: the categories that are inverted, all that a page has to be in, some, and those returned. Returns start, end and
/// categories.
fn ask(pagemap: &File, range: Range<u64>, categories: [u64; 4]) -> std::io::Result<Vec<[u64; 3]>> {
    let mut regions = vec![[0u64; 3]; 512];
    let (mut found, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let room = regions.as_mut_ptr().expose_provenance() as u64;
        let [inverted, all, any, returned] = categories;
        let mut arguments =
            [96, 0, at, range.end, 0, room, regions.len() as u64, 0, inverted, all, any, returned];
        // SAFETY: PAGEMAP_SCAN with a struct of 12 numbers, and room for the regions.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), 0xc060_6610, arguments.as_mut_ptr()) };
        if count < 0 {
            return Err(std::io::Error::last_os_error());
        }
        found.extend(&regions[..count as usize]);
        at = arguments[4];
    }
    Ok(found)
}

/// Adds an entry of a list: address, number of pages, flags, number of pages again.
fn entry(list: &mut Vec<u8>, region: &Range<u64>) {
    let pages = (region.end - region.start) / PAGE;
    let mut entry = Vec::new();
    for (field, mut value) in [(1, region.start), (2, pages), (4, 6), (5, pages)] {
        entry.push(field << 3);
        while value >= 0x80 {
            entry.push(value as u8 | 0x80);
            value >>= 7;
        }
        entry.push(value as u8);
    }
    list.extend((entry.len() as u32).to_le_bytes());
    list.extend(entry);
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
