//! Writing a container: in place, or encrypted.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use pagehaul_encryption::{EncryptingWriter, Recipients};

use super::container::{HEADER, Index, header, tail};
use crate::error::ProcessError;

/// A container whose blocks are written one after the other.
///
/// Until it is finished, its header is marked as incomplete. An encrypted one is written from its first byte to its last, and lacks the
/// last chunk until then. Nothing of it is written in the clear.
pub(crate) struct Writer {
    output: Output,
    /// Where the next block begins in the container.
    offset: u64,
}

enum Output {
    Plain(Arc<File>),
    Encrypted {
        file: Arc<File>,
        stream: Box<EncryptingWriter<Arc<File>>>,
    },
    /// A write has failed, or all is written.
    Ended,
}

impl Writer {
    /// Begins a container in a file, called `path` in messages, of which nothing is kept.
    pub(crate) fn new(
        file: &Arc<File>,
        path: &Path,
        recipients: Option<&Recipients>,
    ) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Output { path: path.to_owned(), action: "write to", source };
        file.set_len(0).and_then(|()| (&**file).rewind()).map_err(failed)?;
        let Some(recipients) = recipients else {
            file.write_all_at(&header(true), 0).map_err(failed)?;
            return Ok(Self { output: Output::Plain(Arc::clone(file)), offset: HEADER });
        };
        let stream = EncryptingWriter::new(Arc::clone(file), recipients)
            .map_err(|error| ProcessError::Refused(format!("cannot write {}: {error}", path.display())))?;
        let mut stream = Box::new(stream);
        stream.write_all(&header(false)).map_err(failed)?;
        Ok(Self { output: Output::Encrypted { file: Arc::clone(file), stream }, offset: HEADER })
    }

    /// Whether a block was written.
    pub(crate) fn has_blocks(&self) -> bool {
        self.offset > HEADER
    }

    /// Writes a block. Returns its offset.
    pub(crate) fn append(&mut self, block: &[u8]) -> io::Result<u64> {
        let offset = self.offset;
        match &mut self.output {
            Output::Plain(file) => file.write_all_at(block, offset)?,
            Output::Encrypted { stream, .. } => stream.write_all(block)?,
            Output::Ended => return Err(ended()),
        }
        self.offset += block.len() as u64;
        Ok(offset)
    }

    /// Writes index and footer behind the blocks, and marks the container as complete once all is on the disk. Returns the size of the
    /// file.
    pub(crate) fn finish(&mut self, index: &Index) -> io::Result<u64> {
        let tail = tail(index, self.offset);
        let file = match std::mem::replace(&mut self.output, Output::Ended) {
            Output::Plain(file) => {
                file.write_all_at(&tail, self.offset)?;
                file.sync_data()?;
                file.write_all_at(&header(false), 0)?;
                file
            }
            Output::Encrypted { file, mut stream } => {
                stream.write_all(&tail)?;
                stream.finish()?;
                file
            }
            Output::Ended => return Err(ended()),
        };
        file.sync_data()?;
        Ok(file.metadata()?.len())
    }
}

fn ended() -> io::Error {
    io::Error::other("the container has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_what_was_written_before() {
        let index = Index { about: "{}".into(), images: Vec::new(), base: None };
        let finished = |begun_before: bool| {
            let named = tempfile::NamedTempFile::new().unwrap();
            let file = Arc::new(named.reopen().unwrap());
            let mut writer = Writer::new(&file, named.path(), None).unwrap();
            if begun_before {
                writer.append(&[7; 1000]).unwrap();
                assert!(writer.has_blocks());
                writer = Writer::new(&file, named.path(), None).unwrap();
            }
            assert!(!writer.has_blocks());
            writer.finish(&index).unwrap();
            std::fs::read(named.path()).unwrap()
        };
        assert_eq!(finished(true), finished(false));
    }
}
