//! kdump-compressed dumps, in files and in flattened streams.

use std::collections::VecDeque;

use pagehaul_codec::Codec;
use pagehaul_kdump::format::flags;
use pagehaul_kdump::{Header, Layout, PageDesc, STATUS_OFFSET};
use pagehaul_memory::{PAGE_SIZE, bits};
use zerocopy::IntoBytes;

use super::DumpWriter;
use crate::batch::{BATCH_PAGES, Bitmap};
use crate::pack::{Batch, Stored};
use crate::sink::{Sink, WriteError};
use crate::stream::Stream;
use crate::{CaptureError, Watch};

/// Bytes per write of page data.
const DATA_CHUNK: usize = 4 << 20;
/// Bytes per write of descriptors: 24 bytes a page, so these go out far less often.
const DESCRIPTOR_CHUNK: usize = 256 << 10;

/// The descriptor bit of a codec.
pub(crate) fn codec_flag(codec: Codec) -> u32 {
    match codec {
        Codec::None => 0,
        Codec::Zlib => flags::ZLIB,
        Codec::Lzo => flags::LZO,
        Codec::Snappy => flags::SNAPPY,
        Codec::Zstd => flags::ZSTD,
    }
}

/// Pages that are in the file for good once so much of the data stream is.
struct Pending {
    pages: u64,
    data_end: u64,
}

/// A kdump-compressed dump whose header and bitmaps are written.
pub(crate) struct KdumpDump<'a> {
    sink: &'a mut dyn Sink,
    watch: &'a Watch,
    header: &'a Header<'a>,
    layout: Layout,
    /// Where bitmap 2 can be read back; none in a stream.
    bitmap: Option<Bitmap>,
    pages: u64,
    placed: u64,
    safe: u64,
    pending: VecDeque<Pending>,
    descriptors: Stream,
    data: Stream,
    zero_page: u64,
    encoded: Vec<u8>,
    /// Whether a page could not be read.
    lost: bool,
}

impl<'a> KdumpDump<'a> {
    /// Goes on after the bitmaps: `pages` pages will be placed.
    pub(crate) fn new(
        sink: &'a mut dyn Sink,
        header: &'a Header<'a>,
        layout: Layout,
        bitmap: Option<Bitmap>,
        pages: u64,
        watch: &'a Watch,
    ) -> Result<Self, CaptureError> {
        let zero_page = layout.zero_page_offset(pages)?;
        let table = layout.descriptors_offset();
        Ok(Self {
            descriptors: Stream::new(table, DESCRIPTOR_CHUNK),
            data: Stream::new(zero_page, DATA_CHUNK),
            encoded: Vec::with_capacity(BATCH_PAGES * PageDesc::SIZE),
            pending: VecDeque::new(),
            placed: 0,
            safe: 0,
            lost: false,
            sink,
            watch,
            header,
            layout,
            bitmap,
            pages,
            zero_page,
        })
    }

    /// Notes which pages are in the file for good.
    fn settle(&mut self) {
        let flushed = self.data.flushed();
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.data_end <= flushed) {
            self.safe = pending.pages;
        }
    }

    /// Clears the bits of all pages but the first `keep` in bitmap 2.
    fn forget_pages(&mut self, bitmap: &Bitmap, keep: u64) -> Result<(), WriteError> {
        const WORDS: usize = 8192;
        let other = |error: CaptureError| WriteError::from(std::io::Error::other(error));
        let mut words = vec![0u64; WORDS];
        let mut rest = keep;
        for first in (0..self.layout.max_mapnr()).step_by(WORDS * 64) {
            bitmap.load(first, &mut words).map_err(other)?;
            let here = bits::count(&words);
            if here <= rest {
                rest -= here;
                continue;
            }
            let cut = bits::ones(&words).nth(rest as usize).unwrap_or(WORDS * 64);
            rest = 0;
            bits::clear_range(&mut words, cut, WORDS * 64);
            let start = first / 8;
            let length = (bitmap.length - start).min(size_of_val(words.as_slice()) as u64) as usize;
            self.sink.write(bitmap.offset + start, &words.as_bytes()[..length])?;
        }
        Ok(())
    }

    fn write_status(&mut self, incomplete: bool) -> Result<(), WriteError> {
        self.sink.write(STATUS_OFFSET, &self.header.status(incomplete))
    }

    /// A stream cannot take back the bits of its bitmap: the pages that are not there get descriptors that say so.
    fn fill_descriptors(&mut self) -> Result<(), WriteError> {
        let missing = (self.pages - self.safe) * PageDesc::SIZE as u64;
        self.descriptors.push_zeros(missing, self.sink, self.watch)?;
        self.descriptors.flush(self.sink, self.watch)?;
        self.write_status(true)
    }
}

impl DumpWriter for KdumpDump<'_> {
    // Makes room for the descriptors, so that a disk that fills up later can still say what it holds, and writes the
    // page all pages of zeros share.
    fn begin(&mut self) -> Result<(), WriteError> {
        let table = self.layout.descriptors_offset();
        self.sink.reserve(table, self.zero_page - table)?;
        self.data.push(&[0; PAGE_SIZE], self.sink, self.watch)
    }

    fn place(&mut self, batch: &Batch) -> Result<(), WriteError> {
        let base = self.data.end();
        self.encoded.clear();
        for (stored, place) in batch.places() {
            let at = base + place.start as u64;
            let descriptor = match stored {
                Stored::Zero => PageDesc::new(self.zero_page, PAGE_SIZE as u32, 0),
                Stored::Raw => PageDesc::new(at, PAGE_SIZE as u32, 0),
                Stored::Packed(size) => PageDesc::new(at, size.into(), self.header.codec),
                Stored::Unreadable => {
                    self.lost = true;
                    PageDesc::new(0, 0, 0)
                }
            };
            self.encoded.extend_from_slice(descriptor.as_bytes());
        }
        self.data.push(batch.data(), self.sink, self.watch)?;
        self.descriptors.push(&self.encoded, self.sink, self.watch)?;
        self.placed += batch.stored.len() as u64;
        self.pending.push_back(Pending { pages: self.placed, data_end: self.data.end() });
        self.settle();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.data.flush(self.sink, self.watch)?;
        self.descriptors.flush(self.sink, self.watch)?;
        // All else must be on the disk before the file says that it is.
        self.sink.sync()?;
        self.write_status(self.lost)?;
        self.sink.sync()
    }

    fn abandon(&mut self) -> u64 {
        // Errors from here on change nothing: the file is marked incomplete, and what cannot be written isn't counted.
        let _ = self.data.flush(self.sink, self.watch);
        self.settle();
        self.descriptors.cut(self.layout.descriptor_offset(self.safe));
        if self.descriptors.flush(self.sink, self.watch).is_err() {
            let there = self.descriptors.flushed() - self.layout.descriptors_offset();
            self.safe = self.safe.min(there / PageDesc::SIZE as u64);
        }
        match self.bitmap.clone() {
            Some(bitmap) => {
                let _ = self.forget_pages(&bitmap, self.safe);
            }
            None => {
                let _ = self.fill_descriptors();
            }
        }
        let _ = self.sink.sync();
        self.safe
    }

    fn size(&self) -> u64 {
        self.data.end()
    }
}
