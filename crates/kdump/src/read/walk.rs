use pagehaul_physmem::ReadError;
use pagehaul_physmem::bits;
use zerocopy::{FromZeros, IntoBytes};

use super::KdumpFile;
use super::bitmap::{GROUP_PAGES, load_bits};
use crate::format::PageDesc;

/// Words of bitmap 2 per step, and so at most 32,768 descriptors.
const WORDS: usize = 512;

/// A section of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    /// The header, the sub header or the notes.
    Headers,
    /// Bitmap 1: which pages exist.
    Bitmap1,
    /// Bitmap 2: which pages are in the dump.
    Bitmap2,
    /// The page descriptors.
    Descriptors,
    /// The pages.
    Data,
}

impl Structure {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Bitmap1 => "bitmap 1",
            Self::Bitmap2 => "bitmap 2",
            Self::Descriptors => "descriptors",
            Self::Data => "page data",
        }
    }
}

impl KdumpFile {
    /// Returns the section at `offset` of the file, or of the file that a flattened stream describes.
    pub fn structure_at(&self, offset: u64) -> Structure {
        let starts = [
            (self.sections.headers_end, Structure::Headers),
            (self.sections.bitmap1, Structure::Data),
            (self.sections.bitmap2, Structure::Bitmap1),
            (self.sections.descriptors, Structure::Bitmap2),
            (self.data_start(), Structure::Descriptors),
        ];
        starts.into_iter().find(|(end, _)| offset < *end).map_or(Structure::Data, |(_, structure)| structure)
    }

    /// Reads descriptors at `offset`. A part of the file that cannot be read costs those that lie in it; a server may answer later, and
    /// its error is returned.
    pub(super) fn read_descriptors(
        &self,
        offset: u64,
        descs: &mut [PageDesc],
    ) -> Result<Readable, ReadError> {
        match self.file.read_exact_at(offset, descs.as_mut_bytes()) {
            Ok(()) => return Ok(Readable { not: Vec::new() }),
            Err(source) if self.file.is_remote() => return Err(self.read_error(offset, source)),
            Err(_) => {}
        }
        let read = |(index, desc): (usize, &mut PageDesc)| {
            let at = offset + (index * PageDesc::SIZE) as u64;
            self.file.read_exact_at(at, desc.as_mut_bytes()).err().map(|_| index)
        };
        Ok(Readable { not: descs.iter_mut().enumerate().filter_map(read).collect() })
    }

    /// Calls `each` with the number of every page in this file, in units of the dump's own page size, and its descriptor, as
    /// far as the file has descriptors that can be read.
    pub fn for_each_descriptor(&self, mut each: impl FnMut(u64, &PageDesc)) -> Result<(), ReadError> {
        let part = self.info.split.clone().unwrap_or(0..self.info.max_mapnr);
        let mut words = [0; WORDS];
        let mut descs = Vec::new();
        let mut done = 0;
        let mut first = part.start;
        while let Some(group) = self.index.next_group(first / GROUP_PAGES) {
            first = first.max(group * GROUP_PAGES);
            if first >= part.end {
                break;
            }
            load_bits(&*self.file, self.sections.bitmap2, first, part.end, &mut words)
                .map_err(|source| self.read_error(self.sections.bitmap2 + first / 8, source))?;
            let offset = self.sections.descriptors + done * PageDesc::SIZE as u64;
            let held = self.file.size().saturating_sub(offset) / PageDesc::SIZE as u64;
            let count = bits::count(&words).min(held);
            descs.resize(count as usize, PageDesc::new_zeroed());
            let readable = self.read_descriptors(offset, &mut descs)?;
            for (index, (page, desc)) in bits::ones(&words).zip(&mut descs).enumerate() {
                if readable.holds(index) {
                    self.byte_layout.descriptor(desc);
                    each(first + page as u64, desc);
                }
            }
            done += count;
            first += (WORDS * 64) as u64;
        }
        Ok(())
    }
}

/// Which of some descriptors were read.
pub(super) struct Readable {
    /// Those that were not, ascending.
    not: Vec<usize>,
}

impl Readable {
    pub(super) fn holds(&self, index: usize) -> bool {
        self.not.binary_search(&index).is_err()
    }
}
