//! The records of a flattened stream.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};

use pagehaul_output::{Output, WriteCosts, WriteError, WriteMeter};
use pagehaul_run::BytesWritten;
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{FLAT_SIGNATURE, FlatHeader, FlatIndex, FlatRecord};

/// What a flattened stream is written to.
pub trait StreamTarget: Write {
    /// Appends `head` and `rest`.
    fn append(&mut self, head: &[u8], rest: &[u8]) -> io::Result<()> {
        self.write_all(head)?;
        self.write_all(rest)
    }

    /// Returns where the next byte goes, if [`return_to`](Self::return_to) can.
    fn position(&mut self) -> Option<u64>;

    /// Removes what was written after `position`.
    fn return_to(&mut self, position: u64) -> io::Result<()>;

    /// Blocks until everything written so far is on the disk, if it goes to a disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl StreamTarget for &File {
    /// On a disk, the records of an older stream may follow: until `head` is written, last, nothing leads to the rest; what
    /// comes next is a record of size 0, which ends a stream as damage does.
    fn append(&mut self, head: &[u8], rest: &[u8]) -> io::Result<()> {
        if self.metadata()?.file_type().is_block_device() {
            let start = self.stream_position()? + head.len() as u64;
            self.write_all_at(&[0; size_of::<FlatRecord>()], start + rest.len() as u64)?;
            self.write_all_at(rest, start)?;
            self.write_all(head)?;
            return self.seek(SeekFrom::Start(start + rest.len() as u64)).map(drop);
        }
        self.write_all(head)?;
        self.write_all(rest)
    }

    fn position(&mut self) -> Option<u64> {
        self.stream_position().ok()
    }

    fn return_to(&mut self, position: u64) -> io::Result<()> {
        let found = self.metadata()?;
        if found.is_file() {
            // Another program may have appended to the file.
            if found.len() != self.stream_position()? {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.set_len(position)?;
        } else if !found.file_type().is_block_device() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.seek(SeekFrom::Start(position)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        let kind = self.metadata()?.file_type();
        if kind.is_file() || kind.is_block_device() { self.sync_data() } else { Ok(()) }
    }
}

impl StreamTarget for Vec<u8> {
    fn position(&mut self) -> Option<u64> {
        Some(self.len() as u64)
    }

    fn return_to(&mut self, position: u64) -> io::Result<()> {
        self.truncate(usize::try_from(position).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A flattened stream: every write becomes a record with its offset. A record costs two writes to `W`, so make records
/// large, or wrap `W` in a buffer.
#[derive(Debug)]
pub struct FlattenedOutput<W> {
    out: W,
    bytes: u64,
    /// The headers of all records, for the index; none once they are too many.
    headers: Option<Vec<u8>>,
    bytes_written: BytesWritten,
    meter: WriteMeter,
    /// The last record is in the stream in part: whatever follows would be taken for the rest of it.
    is_broken: bool,
    /// The record that was to be the last, with the mark of the dump, is not in the stream.
    last_failed: bool,
}

impl<W: StreamTarget> FlattenedOutput<W> {
    /// Writes the header block of the stream. Adds what is written later to `bytes_written`.
    ///
    /// Write each byte once. drgn and `makedumpfile -R` let a later record replace an earlier one, as the format says,
    /// but crash (8.0.2) keeps reading the earlier one. Bytes that are known only at the end, like the status word of a
    /// dump, are a record at the end, and the records before omit them.
    pub fn new(mut out: W, bytes_written: BytesWritten) -> io::Result<Self> {
        let mut header = FlatHeader::new_zeroed();
        header.signature = FLAT_SIGNATURE;
        header.kind = 1.into();
        header.version = 1.into();
        out.append(header.as_bytes(), &[])?;
        let meter = WriteMeter::default();
        let headers = Some(Vec::new());
        Ok(Self { out, bytes: 0, headers, bytes_written, meter, is_broken: false, last_failed: false })
    }

    /// Writes the record of `bytes` at `offset`. Writes nothing for no bytes: readers take a record of size 0 for
    /// damage. A record that fails leaves nothing in the stream; where that is not possible, all later ones fail.
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`] if the record would end above 2^63.
    pub fn record(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(bytes.len() as u64).and_then(|end| i64::try_from(end).ok());
        if end.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a record cannot end above 2^63 bytes"));
        }
        let head = FlatRecord { offset: (offset as i64).into(), size: (bytes.len() as i64).into() };
        self.write_whole(&head, bytes)?;
        self.headers =
            self.headers.take().filter(|headers| headers.len() < FlatIndex::MOST * FlatRecord::SIZE);
        if let Some(headers) = &mut self.headers {
            headers.extend_from_slice(head.as_bytes());
        }
        self.bytes += bytes.len() as u64;
        self.bytes_written.add(bytes.len() as u64);
        Ok(())
    }

    /// Writes all of a record or nothing.
    fn write_whole(&mut self, head: &FlatRecord, bytes: &[u8]) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("an earlier record could not be written"));
        }
        let start = self.out.position();
        let appended = self.out.append(head.as_bytes(), bytes).inspect_err(|_| {
            self.is_broken = start.is_none_or(|start| self.out.return_to(start).is_err());
        });
        self.last_failed = appended.is_err();
        appended
    }

    /// Writes the terminator, then the index, blocks until everything is on the disk, and returns `W`. Readers take a stream without a
    /// terminator for truncated. So a terminator that fails is removed, and none is written if the last record failed: there
    /// may be room for it where there was none for the mark of an incomplete dump. Without the index the stream is complete, so
    /// that one that fails is left out: the reader of a pipe may stop at the terminator.
    pub fn finish(mut self) -> io::Result<W> {
        let end = FlatRecord { offset: FlatRecord::END.into(), size: FlatRecord::END.into() };
        if self.last_failed {
            return Err(io::Error::other("the last record could not be written"));
        }
        let start = self.out.position();
        self.write_whole(&end, &[])?;
        if let Err(error) = self.out.flush().and_then(|()| self.out.sync()) {
            let _ = start.map(|start| self.out.return_to(start));
            return Err(error);
        }
        self.append_index();
        Ok(self.out)
    }

    fn append_index(&mut self) {
        let Some(headers) = self.headers.take() else { return };
        let start = self.out.position();
        let index = FlatIndex::new(&headers);
        let appended = self.out.append(&headers, index.as_bytes()).and_then(|()| self.out.flush());
        if appended.and_then(|()| self.out.sync()).is_err() {
            let _ = start.map(|start| self.out.return_to(start));
        }
    }
}

impl<W: StreamTarget> Output for FlattenedOutput<W> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let meter = self.meter.clone();
        // A pipe has no page cache, but its sync takes no time either.
        Ok(meter.measure_write(bytes.len(), || (self.record(offset, bytes), bytes.len()))?)
    }

    fn reserve(&mut self, _offset: u64, _length: u64) -> Result<(), WriteError> {
        Ok(())
    }

    fn end(&self) -> u64 {
        self.bytes
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.out.flush()?;
        Ok(self.meter.measure_sync(|| self.out.sync())?)
    }

    fn is_sparse(&self) -> bool {
        false
    }

    fn can_rewrite(&self) -> bool {
        false
    }

    fn costs(&self) -> WriteCosts {
        self.meter.costs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream with room for so many bytes.
    struct Room {
        bytes: Vec<u8>,
        room: usize,
        rewinds: bool,
    }

    impl Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.room - self.bytes.len());
            if written == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..written]);
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl StreamTarget for Room {
        fn position(&mut self) -> Option<u64> {
            self.rewinds.then_some(self.bytes.len() as u64)
        }

        fn return_to(&mut self, position: u64) -> io::Result<()> {
            self.bytes.return_to(position)
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_follows_a_record_that_could_not_be_written() {
        let start = size_of::<FlatHeader>();
        for (room, rewinds) in (0..40).flat_map(|room| [(room, false), (room, true)]) {
            let out = Room { bytes: Vec::new(), room: start + 26 + room, rewinds };
            let mut stream = FlattenedOutput::new(out, BytesWritten::default()).unwrap();
            stream.record(0, &[1; 10]).unwrap();
            let long = stream.record(10, &[2; 25]);
            let short = stream.record(100, &[3; 4]);
            let mut expected: Vec<(u64, &[u8])> = vec![(0, &[1; 10])];
            match (long.is_ok(), short.is_ok()) {
                // Without room for the long one there may be some for the short one.
                (false, is_short) => {
                    assert_eq!(is_short, rewinds && room >= 20);
                    if is_short {
                        expected.push((100, &[3; 4]));
                    }
                }
                (true, _) => panic!("there is no room for the long one"),
            }
            let mut bytes = &stream.out.bytes[start..];
            for (offset, data) in expected {
                assert_eq!(bytes[..8], offset.to_be_bytes());
                assert_eq!(&bytes[16..16 + data.len()], data);
                bytes = &bytes[16 + data.len()..];
            }
            assert!(if rewinds { bytes.is_empty() } else { bytes.len() == room });
        }
    }

    #[test]
    fn a_stream_is_complete_though_its_index_does_not_fit() {
        let end = size_of::<FlatHeader>() + 26 + FlatRecord::SIZE;
        let index = FlatRecord::SIZE + FlatIndex::SIZE;
        for (room, rewinds) in (0..=index).flat_map(|room| [(room, false), (room, true)]) {
            let out = Room { bytes: Vec::new(), room: end + room, rewinds };
            let mut stream = FlattenedOutput::new(out, BytesWritten::default()).unwrap();
            stream.record(0, &[1; 10]).unwrap();
            let written = stream.finish().unwrap().bytes;
            assert_eq!(written[end - FlatRecord::SIZE..end], [0xff; FlatRecord::SIZE]);
            assert!(written.len() == if room < index && rewinds { end } else { end + room });
        }
    }

    #[test]
    fn files_are_rewound_unless_others_write_to_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = file.as_file();
        out.write_all(b"kept").unwrap();
        let position = out.position().unwrap();
        out.write_all(b"dropped").unwrap();
        out.return_to(position).unwrap();
        out.write_all(b" too").unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"kept too");
        std::fs::OpenOptions::new().append(true).open(file.path()).unwrap().write_all(b", others").unwrap();
        assert!(out.return_to(position).is_err());
        assert_eq!(std::fs::read(file.path()).unwrap(), b"kept too, others");
        // A pipe cannot be rewound.
        let (_reader, writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(writer));
        assert_eq!((&pipe).position(), None);
        assert!((&pipe).sync().is_ok());
    }
}
