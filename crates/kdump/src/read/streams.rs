use std::io;

use pagehaul_physmem::file::ReadAt;

/// Sequential readers at a time. Page data need not be in PFN order: a writer may put kernel pages first, and all zero pages
/// share one offset.
const STREAMS: usize = 8;
/// Bytes of the first read at a new offset: the size of most pages.
const FIRST_READ: usize = 4 << 10;
/// Bytes of the largest read. More saves little, while all streams together no longer fit the L2 cache, and bytes past the
/// end of a batch are read in vain.
const MAX_READ: usize = 64 << 10;

/// Reads small pieces of a file: with few system calls where they are consecutive, without reading much more than requested
/// where they are not.
pub(super) struct Streams {
    streams: Vec<Stream>,
    clock: u64,
}

#[derive(Default)]
struct Stream {
    start: u64,
    bytes: Vec<u8>,
    /// Bytes to read next.
    ahead: usize,
    used: u64,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { streams: Vec::new(), clock: 0 }
    }

    /// Returns the `size` bytes at `offset`; `size` is at most that of a page.
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
            stream.ahead = (stream.ahead * 2).min(MAX_READ);
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

    /// Returns whether `offset` continues the bytes read, even if some pages were skipped.
    fn leads_to(&self, offset: u64) -> bool {
        !self.bytes.is_empty() && offset >= self.start && offset <= self.end() + self.ahead as u64
    }

    fn fill(&mut self, file: &dyn ReadAt, offset: u64, size: usize) -> io::Result<()> {
        let left = file.size().saturating_sub(offset);
        // A file of a server reads ahead itself, and has what was announced.
        let ahead = if file.is_remote() { 0 } else { self.ahead };
        let wanted = left.min(ahead as u64) as usize;
        self.start = offset;
        self.bytes.resize(wanted.max(size), 0);
        let mut done = 0;
        while done < self.bytes.len() {
            match file.read_at(offset + done as u64, &mut self.bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The requested bytes are there; those read ahead may be bad.
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
