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
use crate::units::{PAGE, Pid, page_size};

/// A base.
pub(crate) struct Base {
    chain: Chain,
    id: String,
    lists: HashMap<String, Pages>,
    /// Bytes of a page.
    page: u64,
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
        Self::open_with(path, pid, page_size())
    }

    /// Opens it on a machine whose pages have `page` bytes.
    fn open_with(path: &Path, pid: Pid, page: u64) -> Result<Self, ProcessError> {
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
            if let Some(pages) = PageList::parse(&list, page).and_then(|list| Pages::new(&chain, list)) {
                lists.insert(image.name.clone(), pages);
            }
        }
        Ok(Self { chain, id, lists, page })
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

    /// Those pages of some ranges that a list of the base has with the same bytes. The new ones are in `content`, one after the other.
    pub(crate) fn unchanged(
        &self,
        list: &str,
        reader: &mut Reader<'_>,
        ranges: &[Range<u64>],
        content: &[u8],
    ) -> Result<Vec<Range<u64>>, ProcessError> {
        let (mut unchanged, mut start, mut old) = (Vec::new(), 0, Vec::new());
        let Some(pages) = self.lists.get(list) else { return Ok(unchanged) };
        for range in ranges {
            let new = Entry { addresses: range.clone(), flags: 0, start };
            for part in pages.common(&new) {
                old.resize(part.bytes as usize, 0);
                reader.read(part.image as usize, part.offset, &mut old)?;
                let now = content.get(part.start as usize..).unwrap_or_default();
                for (number, (now, old)) in
                    (0..).zip(now.chunks(PAGE as usize).zip(old.chunks(PAGE as usize)))
                {
                    let page = range.start + (part.start - start) + number * PAGE;
                    if now == old {
                        unchanged.push(page..page + PAGE);
                    }
                }
            }
            start += range.end - range.start;
        }
        unchanged.dedup_by(|next, last| {
            let follows = last.end == next.start;
            last.end = if follows { next.end } else { last.end };
            follows
        });
        Ok(unchanged)
    }

    /// Returns the name of the image whose pages are in a new list, and the parts of it that may be those of the base, in order.
    pub(crate) fn align(&self, name: &str, list: &[u8]) -> Option<(String, Vec<Part>)> {
        let pages = self.lists.get(name)?;
        let list = PageList::parse(list, self.page)?;
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

/// A block of a new image.
pub(crate) struct NewBlock<'a> {
    /// Where it begins in the image.
    pub(crate) start: u64,
    pub(crate) content: &'a [u8],
    /// Parts of the image in it that `content` does not have, because it is known where they are, in order.
    pub(crate) known: &'a [(Range<u64>, Known)],
    /// Whether the rest is compared with the base. Otherwise it is known that it is not there.
    pub(crate) compares: bool,
}

/// Where a part of a new image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// In the base, at the same address.
    Base,
    /// In the new file: where it begins in what was spilled.
    Spilled(u64),
}

impl NewBlock<'_> {
    fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let range = (range.start - self.start) as usize..(range.end - self.start) as usize;
        self.content.get(range).unwrap_or_default()
    }

    /// Cuts a range into parts of which it is known where they are, and others.
    fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<Known>)> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        let first = self.known.partition_point(|(part, _)| part.end <= at);
        for (part, known) in self.known.iter().skip(first).take_while(|(part, _)| part.start < range.end) {
            let common = part.start.max(at)..part.end.min(range.end);
            let known = match *known {
                Known::Base => Known::Base,
                Known::Spilled(held) => Known::Spilled(held + (common.start - part.start)),
            };
            parts.push((at..common.start, None));
            at = common.end;
            parts.push((common, Some(known)));
        }
        parts.push((at..range.end, None));
        parts.retain(|(part, _)| !part.is_empty());
        parts
    }

    /// Finds out where its bytes are. Of its `common` parts, which may be those of the base, it compares the bytes with those that `read`
    /// finds in an image of the base, at an offset. Leaves those that are nowhere yet in `own`, and returns the runs of which it
    /// consists.
    pub(crate) fn runs(
        &self,
        common: &[Part],
        read: &mut impl FnMut(u32, u64, &mut [u8]) -> Result<(), ProcessError>,
        own: &mut Vec<u8>,
    ) -> Result<Vec<Run>, ProcessError> {
        own.clear();
        let (mut runs, mut at, mut old) = (Vec::new(), self.start, Vec::new());
        let end = self.start + self.content.len() as u64;
        let mut keep = |range: &Range<u64>, runs: &mut Vec<Run>| {
            own.extend_from_slice(self.bytes(range));
            push(runs, Run { bytes: range.end - range.start, from: Origin::Next });
        };
        let first = common.partition_point(|part| part.start + part.bytes <= self.start);
        let after = Part { start: end, bytes: 0, image: 0, offset: 0 };
        let common = common.iter().skip(first).take_while(|part| part.start < end);
        for part in common.chain([&after]) {
            let shared = part.start.max(self.start)..(part.start + part.bytes).min(end);
            for (range, known) in self.parts(at..shared.start) {
                match known {
                    None => keep(&range, &mut runs),
                    Some(Known::Spilled(held)) => push(&mut runs, held_run(&range, held)),
                    Some(Known::Base) => return Err(lacks_pages()),
                }
            }
            let in_base = |range: &Range<u64>| {
                let from = Origin::Base(part.image, part.offset + (range.start - part.start));
                Run { bytes: range.end - range.start, from }
            };
            for (range, known) in self.parts(shared.clone()) {
                match known {
                    Some(Known::Base) => push(&mut runs, in_base(&range)),
                    Some(Known::Spilled(held)) => push(&mut runs, held_run(&range, held)),
                    None if !self.compares => keep(&range, &mut runs),
                    None => {
                        old.resize((range.end - range.start) as usize, 0);
                        read(part.image, part.offset + (range.start - part.start), &mut old)?;
                        for (page, old) in range.step_by(PAGE as usize).zip(old.chunks(PAGE as usize)) {
                            let page = page..page + old.len() as u64;
                            if self.bytes(&page) == old {
                                push(&mut runs, in_base(&page));
                            } else {
                                keep(&page, &mut runs);
                            }
                        }
                    }
                }
            }
            at = shared.end;
        }
        Ok(runs)
    }
}

fn held_run(range: &Range<u64>, held: u64) -> Run {
    Run { bytes: range.end - range.start, from: Origin::Held(held) }
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
        images_of(PAGE, memory)
    }

    /// The images of a machine whose pages have `page` bytes. The memory is still in units of [`PAGE`].
    fn images_of(page_bytes: u64, memory: &Memory) -> (Vec<u8>, Vec<u8>) {
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
            let pages = (entry.end - entry.start) * PAGE / page_bytes;
            page_list::encode(&mut list, entry.start * PAGE, pages, page_list::PRESENT);
        }
        (list, pages)
    }

    /// Writes a checkpoint of memory, in blocks of a few pages, with or without a base.
    fn write(path: &Path, id: &str, memory: &Memory, base: Option<&Base>) {
        write_of(PAGE, path, id, memory, base);
    }

    fn write_of(page: u64, path: &Path, id: &str, memory: &Memory, base: Option<&Base>) {
        let (list, pages) = images_of(page, memory);
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
            let mut own = content.to_vec();
            if let (Some(base), Some(parts)) = (base, &parts) {
                let mut reader = base.reader().unwrap();
                let mut read = |image: u32, offset, old: &mut [u8]| reader.read(image as usize, offset, old);
                let block = NewBlock { start, content, known: &[], compares: true };
                let runs = block.runs(parts, &mut read, &mut own).unwrap();
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
        Base::open_with(path, 1, PAGE).unwrap()
    }

    fn read(path: &Path) -> (Vec<u8>, Vec<u8>) {
        let chain = Chain::open(path).unwrap();
        let content = |name: &str| chain.content(chain.find(name).unwrap()).unwrap();
        (content(LIST), content(PAGES))
    }

    #[test]
    fn a_block_is_where_its_parts_are_known_to_be() {
        // The block has pages 10 to 17. Pages 11 to 16 may be in the base: in its image 4, from page 100 of that image on.
        let content: Vec<u8> = (10..18).flat_map(|page| vec![page; PAGE as usize]).collect();
        let pages = |first: u64, count: u64| first * PAGE..(first + count) * PAGE;
        let known = [
            (pages(10, 1), Known::Spilled(7 * PAGE)),
            (pages(12, 2), Known::Base),
            (pages(14, 1), Known::Spilled(9 * PAGE)),
        ];
        let common = [Part { start: 11 * PAGE, bytes: 6 * PAGE, image: 4, offset: 100 * PAGE }];
        // Only page 15, which is page 104 there, has the same bytes.
        let mut read = |image: u32, offset: u64, old: &mut [u8]| {
            assert_eq!(image, 4);
            for (page, old) in (offset / PAGE..).zip(old.chunks_mut(PAGE as usize)) {
                old.fill(if page == 104 { 15 } else { 0 });
            }
            Ok(())
        };
        let run = |pages: u64, from| Run { bytes: pages * PAGE, from };
        let (next, base) = (Origin::Next, |page: u64| Origin::Base(4, page * PAGE));
        let spilled = |page: u64| Origin::Held(page * PAGE);
        let block = |compares| NewBlock { start: 10 * PAGE, content: &content, known: &known, compares };
        let mut own = Vec::new();
        let runs = block(true).runs(&common, &mut read, &mut own).unwrap();
        let first = [run(1, spilled(7)), run(1, next), run(2, base(101)), run(1, spilled(9))];
        assert_eq!(runs, [&first[..], &[run(1, base(104)), run(2, next)]].concat());
        assert_eq!(own.chunks(PAGE as usize).map(|page| page[0]).collect::<Vec<_>>(), [11, 16, 17]);
        let runs = block(false).runs(&common, &mut |_, _, _| unreachable!(), &mut own).unwrap();
        assert_eq!(runs, [&first[..], &[run(3, next)]].concat());
        assert_eq!(own.chunks(PAGE as usize).map(|page| page[0]).collect::<Vec<_>>(), [11, 15, 16, 17]);
        assert!(block(true).runs(&[], &mut read, &mut own).is_err(), "pages are not in the base");
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
    fn of_a_page_of_16_kib_only_what_changed_is_written_again() {
        const BYTES: u64 = 4 * PAGE;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut memory: Memory = (12..32).map(|number| (number, number as u8)).collect();
        write_of(BYTES, &path("0"), "0", &memory, None);
        let base = Base::open_with(&path("0"), 1, BYTES).unwrap();
        assert_eq!(base.addresses(LIST), std::slice::from_ref(&(3 * BYTES..8 * BYTES)));
        memory.insert(21, 200);
        write_of(BYTES, &path("1"), "1", &memory, Some(&base));
        let newest = Chain::open(&path("1")).unwrap();
        let image = &newest.newest().index.images[newest.find(PAGES).unwrap()];
        assert_eq!((image.own_bytes(), image.bytes()), (PAGE, 5 * BYTES));
        assert_eq!(read(&path("1")), images_of(BYTES, &memory));
        // A machine with other pages has nothing in common with it.
        assert!(Base::open_with(&path("0"), 1, PAGE).unwrap().addresses(LIST).is_empty());
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
