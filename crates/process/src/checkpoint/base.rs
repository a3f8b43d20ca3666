//! The checkpoint that a new one is based on, and which bytes of the new one are in it.
//!
//! A page of the new one is left out only if its bytes were compared with those of the base, or if marks of writes since the base
//! show that it is the same: the page of the same process (or shared memory) and address. Any other is written.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, absolute};

use pagehaul_run::{Phase, Progress};

use super::chain::{Chain, LONGEST, Reader};
use super::container::{self, Container, Origin, Run, container_path};
use super::info::check_blocks;
use super::page_list::{self, Entry, PageList};
use crate::error::ProcessError;
use crate::units::{PAGE, Pid};

/// A base.
pub(crate) struct Base {
    chain: Chain,
    id: String,
    lists: HashMap<String, Pages>,
}

/// The pages of a process, or of shared memory.
struct Pages {
    /// The number of the image that has them.
    image: u32,
    /// In the order of their addresses.
    entries: Vec<Entry>,
}

/// Bytes of a new image that may be those of the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where they begin in the new image.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The image of the base, and where they begin in it.
    pub(crate) image: u32,
    pub(crate) offset: u64,
}

impl Base {
    /// Opens the base of a new checkpoint of a process.
    pub(crate) fn open(path: &Path, pid: Pid) -> Result<Self, ProcessError> {
        let chain = Chain::open(&container_path(path))?;
        let damaged = |what: String| ProcessError::Damaged { path: path.to_owned(), what };
        let about = chain.newest().index.about();
        if about["pid"].as_i64() != Some(pid.into()) {
            return Err(damaged(format!(
                "it is a checkpoint of process {} ({}), and no base for one of process {pid}; leave out --base",
                about["pid"],
                about["name"].as_str().unwrap_or_default()
            )));
        }
        let Some(id) = chain.newest().id() else {
            return Err(damaged(
                "it has no ID, and can be no base: an older pagehaul wrote it; leave out --base".into(),
            ));
        };
        if chain.files().count() >= LONGEST {
            return Err(damaged(format!(
                "it needs {} more checkpoints, and a chain has at most {LONGEST}; make it whole with `pagehaul convert`",
                LONGEST - 1
            )));
        }
        let mut lists = HashMap::new();
        for (number, image) in
            chain.images.iter().enumerate().filter(|(_, image)| page_list::is_list(&image.name))
        {
            let list = chain.content(number)?;
            // A list that is not as expected has nothing in common with a new one.
            if let Some(pages) = PageList::parse(&list).and_then(|list| Pages::new(&chain, list)) {
                lists.insert(image.name.clone(), pages);
            }
        }
        Ok(Self { chain, id, lists })
    }

    /// Verifies all blocks that it needs: what is based on damage is damaged.
    pub(crate) fn verify(&self, threads: usize, progress: &Progress) -> Result<(), ProcessError> {
        progress.enter(Phase::Pack);
        match check_blocks(&self.chain.needed_blocks(), threads, progress).into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The addresses of the pages in a list, in order.
    pub(crate) fn addresses(&self, list: &str) -> Vec<Range<u64>> {
        let entries = self.lists.get(list).map_or(&[][..], |pages| &pages.entries);
        entries.iter().map(|entry| entry.addresses.clone()).collect()
    }

    /// Device and inode of the files that it is in.
    pub(crate) fn files(&self) -> Vec<(u64, u64)> {
        self.chain.files().map(Container::identity).collect()
    }

    /// Whether any of these files is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.chain.files().any(Container::is_encrypted)
    }

    /// How a checkpoint at a path names it: by its path relative to that one, if they are in the same directory.
    pub(crate) fn reference(&self, newer: &Path) -> Result<container::Base, ProcessError> {
        let path = &self.chain.newest().path;
        let failed = |source| ProcessError::Output { path: path.clone(), action: "find", source };
        let (own, other) = (absolute(path).map_err(failed)?, absolute(newer).map_err(failed)?);
        let named = match (own.parent(), other.parent(), own.file_name()) {
            (Some(one), Some(other), Some(name)) if is_same_directory(one, other) => Path::new(name),
            _ => &own,
        };
        let named = named.to_str().ok_or_else(|| ProcessError::Damaged {
            path: path.clone(),
            what: "a base needs a name in UTF-8".into(),
        })?;
        Ok(container::Base { path: named.to_owned(), id: self.id.clone() })
    }

    /// A reader of its images.
    pub(crate) fn reader(&self) -> Result<Reader<'_>, ProcessError> {
        Reader::new(&self.chain)
    }

    /// Returns the name of the image whose pages are in a new list, and the parts of it that may be those of the base, in order.
    pub(crate) fn align(&self, name: &str, list: &[u8]) -> Option<(String, Vec<Part>)> {
        let pages = self.lists.get(name)?;
        let list = PageList::parse(list)?;
        let parts = list.entries.iter().flat_map(|entry| pages.common(entry)).collect();
        Some((list.pages()?, parts))
    }
}

fn is_same_directory(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

impl Pages {
    fn new(chain: &Chain, list: PageList<'_>) -> Option<Self> {
        let image = chain.find(&list.pages()?)?;
        if chain.images.get(image)?.bytes != list.bytes() {
            return None;
        }
        let mut entries = list.entries;
        entries.sort_by_key(|entry| entry.addresses.start);
        let overlap = entries.windows(2).any(|pair| pair[0].addresses.end > pair[1].addresses.start);
        if overlap {
            return None;
        }
        Some(Self { image: u32::try_from(image).ok()?, entries })
    }

    /// The parts of a new entry that have the addresses of these pages.
    fn common<'a>(&'a self, new: &'a Entry) -> impl Iterator<Item = Part> + 'a {
        let Range { start, end } = new.addresses;
        let first = self.entries.partition_point(|entry| entry.addresses.end <= start);
        let overlap = self.entries.iter().skip(first).take_while(move |entry| entry.addresses.start < end);
        overlap.map(move |entry| {
            let from = entry.addresses.start.max(start);
            Part {
                start: new.start + (from - start),
                bytes: entry.addresses.end.min(end) - from,
                image: self.image,
                offset: entry.start + (from - entry.addresses.start),
            }
        })
    }
}

/// Finds out what a block of a new image, which begins at `start`, has in common with the base: the parts `in_base`, if marks show
/// that, else what is the same in the parts that may be. Leaves the other bytes in `own`, and returns the runs of which the block consists.
pub(crate) fn compare(
    reader: &mut Reader<'_>,
    parts: &[Part],
    start: u64,
    content: &[u8],
    in_base: Option<&[Range<u64>]>,
    room: &mut Vec<u8>,
    own: &mut Vec<u8>,
) -> Result<Vec<Run>, ProcessError> {
    own.clear();
    let (mut runs, mut at) = (Vec::new(), start);
    let end = start + content.len() as u64;
    let bytes_of = |range: Range<u64>| {
        content.get((range.start - start) as usize..(range.end - start) as usize).unwrap_or_default()
    };
    let mut keep = |range: Range<u64>, runs: &mut Vec<Run>| {
        own.extend_from_slice(bytes_of(range.clone()));
        push(runs, Run { bytes: range.end - range.start, from: Origin::Next });
    };
    let mut known = 0;
    let first = parts.partition_point(|part| part.start + part.bytes <= start);
    for part in parts.iter().skip(first).take_while(|part| part.start < end) {
        let common = part.start.max(start)..(part.start + part.bytes).min(end);
        keep(at..common.start, &mut runs);
        at = common.end;
        let offset = part.offset + (common.start - part.start);
        if let Some(in_base) = in_base {
            let mut at = common.start;
            let first = in_base.partition_point(|range| range.end <= at);
            for range in in_base.iter().skip(first).take_while(|range| range.start < common.end) {
                let range = range.start.max(common.start)..range.end.min(common.end);
                keep(at..range.start, &mut runs);
                let (bytes, offset) = (range.end - range.start, offset + (range.start - common.start));
                push(&mut runs, Run { bytes, from: Origin::Base(part.image, offset) });
                known += bytes;
                at = range.end;
            }
            keep(at..common.end, &mut runs);
            continue;
        }
        room.resize((common.end - common.start) as usize, 0);
        reader.read(part.image as usize, offset, room)?;
        for (page, old) in common.clone().step_by(PAGE as usize).zip(room.chunks(PAGE as usize)) {
            let range = page..page + old.len() as u64;
            if bytes_of(range.clone()) == old {
                let from = Origin::Base(part.image, offset + (page - common.start));
                push(&mut runs, Run { bytes: old.len() as u64, from });
            } else {
                keep(range, &mut runs);
            }
        }
    }
    keep(at..end, &mut runs);
    let wanted: u64 = in_base.unwrap_or_default().iter().map(|range| range.end - range.start).sum();
    if known == wanted { Ok(runs) } else { Err(lacks_pages()) }
}

/// The error for pages that were not copied, because the base has them, and that are not found there.
pub(crate) fn lacks_pages() -> ProcessError {
    ProcessError::Refused(
        "the base lacks pages that are marked as unchanged since; checkpoint without --base".into(),
    )
}

/// Adds a run to others, or to the last one if it follows that.
pub(crate) fn push(runs: &mut Vec<Run>, run: Run) {
    if run.bytes == 0 {
        return;
    }
    let follows = |last: &Run| match (last.from, run.from) {
        (Origin::Next, Origin::Next) => true,
        (Origin::Held(offset), Origin::Held(next)) => offset + last.bytes == next,
        (Origin::Base(image, offset), Origin::Base(other, next)) => {
            image == other && offset + last.bytes == next
        }
        _ => false,
    };
    match runs.last_mut() {
        Some(last) if follows(last) => last.bytes += run.bytes,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::container::{Block, HEADER, Image, Index};
    use pagehaul_codec::FrameCompressor;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::fs;

    const LIST: &str = "pagemap-1.img";
    const PAGES: &str = "pages-1.img";

    /// Memory: what each page is filled with, by its number.
    type Memory = BTreeMap<u64, u8>;

    fn images(memory: &Memory) -> (Vec<u8>, Vec<u8>) {
        let (mut list, mut pages) = (page_list::empty(1), Vec::new());
        let mut entries: Vec<Range<u64>> = Vec::new();
        for (&page, &value) in memory {
            pages.extend([value; PAGE as usize]);
            match entries.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => entries.push(page..page + 1),
            }
        }
        for entry in entries {
            page_list::encode(&mut list, entry.start * PAGE, entry.end - entry.start, page_list::PRESENT);
        }
        (list, pages)
    }

    /// Writes a checkpoint of memory, in blocks of a few pages, with or without a base.
    fn write(path: &Path, id: &str, memory: &Memory, base: Option<&Base>) {
        let (list, pages) = images(memory);
        let mut compressor = FrameCompressor::new(1).unwrap();
        let (mut out, mut frame) = (container::header(false), Vec::new());
        let mut block = |content: &[u8]| {
            compressor.compress(content, &mut frame).unwrap();
            let offset = out.len() as u64;
            out.extend(&frame);
            let (stored, bytes) = (frame.len() as u32, content.len() as u32);
            Block { offset, stored, bytes, checksum: container::checksum(&frame) }
        };
        let parts = base.and_then(|base| base.align(LIST, &list)).map(|(name, parts)| {
            assert_eq!(name, PAGES);
            parts
        });
        let mut image = Image { name: PAGES.into(), blocks: Vec::new(), runs: Vec::new() };
        for (number, content) in pages.chunks(3 * PAGE as usize).enumerate() {
            let start = number as u64 * 3 * PAGE;
            let (mut own, mut room) = (content.to_vec(), Vec::new());
            if let (Some(base), Some(parts)) = (base, &parts) {
                let mut reader = base.reader().unwrap();
                let runs = compare(&mut reader, parts, start, content, None, &mut room, &mut own).unwrap();
                runs.into_iter().for_each(|run| push(&mut image.runs, run));
            }
            if !own.is_empty() {
                image.blocks.push(block(&own));
            }
        }
        let list = Image { name: LIST.into(), blocks: vec![block(&list)], runs: Vec::new() };
        let about = format!(r#"{{"pid": 1, "id": "{id}", "name": "x"}}"#);
        let base = base.map(|base| base.reference(path).unwrap());
        let tail = container::tail(&Index { about, images: vec![list, image], base }, out.len() as u64);
        out.extend(tail);
        assert!(out.len() as u64 > HEADER);
        fs::write(path, out).unwrap();
    }

    fn open(path: &Path) -> Base {
        Base::open(path, 1).unwrap()
    }

    fn read(path: &Path) -> (Vec<u8>, Vec<u8>) {
        let chain = Chain::open(path).unwrap();
        let content = |name: &str| chain.content(chain.find(name).unwrap()).unwrap();
        (content(LIST), content(PAGES))
    }

    proptest! {
        /// Pages come, go and change between generations.
        #[test]
        fn every_generation_is_as_it_was(
            changes in proptest::collection::vec(
                proptest::collection::vec((0u64..40, 0u8..4), 0..30), 1..6,
            ),
            start in 0u64..60,
            length in 0usize..70_000,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = |number: usize| directory.path().join(number.to_string());
            let (mut memory, mut memories, mut base) = (Memory::new(), Vec::new(), None);
            for (number, changes) in changes.iter().enumerate() {
                for &(page, value) in changes {
                    if value == 0 { memory.remove(&page); } else { memory.insert(page, value); }
                }
                write(&path(number), &number.to_string(), &memory, base.as_ref());
                base = Some(open(&path(number)));
                memories.push(memory.clone());
            }
            for (number, memory) in memories.iter().enumerate() {
                let expected = images(memory);
                prop_assert_eq!(&read(&path(number)), &expected);
                // From any byte on.
                let chain = Chain::open(&path(number)).unwrap();
                let pages = chain.find(PAGES).unwrap();
                let start = (start * 1000).min(expected.1.len() as u64);
                let end = expected.1.len().min(start as usize + length);
                let mut part = vec![0; end - start as usize];
                Reader::new(&chain).unwrap().read(pages, start, &mut part).unwrap();
                prop_assert_eq!(&part[..], &expected.1[start as usize..end]);
            }
        }
    }

    #[test]
    fn what_is_unchanged_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut memory: Memory = (10..30).map(|page| (page, page as u8)).collect();
        write(&path("0"), "0", &memory, None);
        memory.insert(20, 200);
        write(&path("1"), "1", &memory, Some(&open(&path("0"))));
        let newest = Chain::open(&path("1")).unwrap();
        let image = &newest.newest().index.images[newest.find(PAGES).unwrap()];
        assert_eq!((image.own_bytes(), image.bytes()), (PAGE, 20 * PAGE));
        assert_eq!(image.runs.len(), 3);
    }

    #[test]
    fn bases_that_are_missing_or_others_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let memory: Memory = (10..30).map(|page| (page, page as u8)).collect();
        write(&path("0"), "0", &memory, None);
        write(&path("1"), "1", &memory, Some(&open(&path("0"))));
        write(&path("2"), "2", &memory, Some(&open(&path("1"))));
        let fails = |part: &str| {
            let error = Chain::open(&path("2")).unwrap_err().to_string();
            assert!(error.contains(part), "no {part:?} in {error}");
        };
        fs::rename(path("0"), path("lost")).unwrap();
        fails(&format!("1: its base {} is missing", path("0").display()));
        fs::copy(path("2"), path("0")).unwrap();
        fails("0 is not the checkpoint that it is based on, but another one (ID 2, not 0)");
        write(&path("0"), "0", &Memory::new(), None);
        fails("does not fit its base");
        let whole = fs::read(path("lost")).unwrap();
        fs::write(path("0"), &whole[..whole.len() - 1]).unwrap();
        fails("its base cannot be read");
        // Moved together, they are found.
        fs::rename(path("lost"), path("0")).unwrap();
        let moved = directory.path().join("moved");
        fs::create_dir(&moved).unwrap();
        ["0", "1", "2"].iter().for_each(|name| fs::rename(path(name), moved.join(name)).unwrap());
        assert_eq!(read(&moved.join("2")), images(&memory));
        let error = Base::open(&moved.join("2"), 7).err().unwrap().to_string();
        assert!(
            error.contains("is a checkpoint of process 1 (x), and no base for one of process 7"),
            "{error}"
        );
    }
}
