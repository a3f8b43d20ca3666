//! Files and pipes that are open.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use pagehaul_physmem::file::shown;

use crate::error::UploadError;
use crate::{Opened, Stream, Uploaded};

/// Bytes written before the disk has to have them, so that a power cut loses no more.
const SYNC_EVERY: u64 = 32 << 20;
const BUFFER: usize = 1 << 20;

/// Takes a stream into `file`.
pub(crate) fn open(file: Arc<File>, name: &Path) -> Opened {
    let name = shown(name).display().to_string();
    let send = move |stream: &mut Stream| match copy(stream, &file) {
        Ok(()) => Ok(Uploaded { resumed: 0 }),
        Err(error) => Err(UploadError::refused(format!("cannot write {name}: {error}"))),
    };
    Opened { memory: BUFFER as u64, warning: None, send: Box::new(send) }
}

fn copy(stream: &mut Stream, mut file: &File) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut unsynced = 0;
    loop {
        let mut count = 0;
        let read = loop {
            match stream.read(&mut buffer[count..]) {
                Ok(0) => break Ok(()),
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        // What came before a stream that breaks off is of use.
        file.write_all(&buffer[..count])?;
        unsynced += count as u64;
        let is_end = count < BUFFER || read.is_err();
        if is_end || unsynced >= SYNC_EVERY {
            sync(file)?;
            unsynced = 0;
        }
        read?;
        if is_end {
            return Ok(());
        }
    }
}

/// Waits for the disk, if there is one.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    match file.sync_data() {
        // A pipe.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}
