use std::io;

use pagehaul_physmem::file::ReadAt;

/// Places in the file that are read in order at the same time. Page data need not be in PFN order: a writer may put
/// kernel pages first, and all pages of zeros share one place.
const STREAMS: usize = 8;
/// Bytes read at a place that was not read before: what most pages take.
const FIRST_READ: usize = 4 << 10;
/// Bytes read at once in the end. More does not save much, but all streams together no longer fit the processor's second
/// cache, and what is read past the end of a batch is read for nothing.
const MOST_READ: usize = 64 << 10;

/// Reads small pieces of a file with few system calls where they follow each other, and without reading much more
/// than asked where they don't.
pub(super) struct Streams {
    streams: Vec<Stream>,
    clock: u64,
}

#[derive(Default)]
struct Stream {
    start: u64,
    bytes: Vec<u8>,
    /// How much to read next.
    ahead: usize,
    used: u64,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { streams: Vec::new(), clock: 0 }
    }

    /// The `size` bytes at `offset`; `size` is at most that of a page.
    pub(super) fn get(&mut self, file: &dyn ReadAt, offset: u64, size: usize) -> io::Result<&[u8]> {
        let at = self.choose(offset, size);
        self.clock += 1;
        let stream = &mut self.streams[at];
        stream.used = self.clock;
        if !stream.holds(offset, size) {
            stream.fill(file, offset, size)?;
        }
        let from = (offset - stream.start) as usize;
        Ok(&stream.bytes[from..from + size])
    }

    fn choose(&mut self, offset: u64, size: usize) -> usize {
        if let Some(at) = self.streams.iter().position(|stream| stream.holds(offset, size)) {
            return at;
        }
        if let Some(at) = self.streams.iter().position(|stream| stream.leads_to(offset)) {
            let stream = &mut self.streams[at];
            stream.ahead = (stream.ahead * 2).min(MOST_READ);
            return at;
        }
        let at = if self.streams.len() < STREAMS {
            self.streams.push(Stream::default());
            self.streams.len() - 1
        } else {
            (0..STREAMS).min_by_key(|&at| self.streams[at].used).unwrap_or(0)
        };
        self.streams[at].ahead = FIRST_READ;
        at
    }
}

impl Stream {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn holds(&self, offset: u64, size: usize) -> bool {
        offset >= self.start && offset.saturating_add(size as u64) <= self.end()
    }

    /// Whether `offset` goes on from what was read, give or take some pages that were skipped.
    fn leads_to(&self, offset: u64) -> bool {
        !self.bytes.is_empty() && offset >= self.start && offset <= self.end() + self.ahead as u64
    }

    fn fill(&mut self, file: &dyn ReadAt, offset: u64, size: usize) -> io::Result<()> {
        let left = file.size().saturating_sub(offset);
        let wanted = left.min(self.ahead as u64) as usize;
        self.start = offset;
        self.bytes.resize(wanted.max(size), 0);
        let mut done = 0;
        while done < self.bytes.len() {
            match file.read_at(offset + done as u64, &mut self.bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What lies beyond may be bad while what was asked for is not.
                Err(_) if done >= size => break,
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(done);
        if done < size {
            self.bytes.clear();
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}
