use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::tracefs::refused;
use crate::error::TraceError;

/// A CPU's `trace_pipe_raw`: reads consume whole sub-buffers.
#[derive(Debug)]
pub(super) struct CpuPipe {
    file: File,
    path: PathBuf,
    sub_buffer_size: usize,
}

impl CpuPipe {
    pub(super) fn open(path: &Path, sub_buffer_size: u32) -> Result<Self, TraceError> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| refused(path, "open", error))?;
        Ok(Self { file, path: path.to_owned(), sub_buffer_size: sub_buffer_size as usize })
    }

    /// Reads one sub-buffer into `page`. Returns false if there is none now.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub(super) fn read(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError> {
        page.resize(self.sub_buffer_size, 0);
        loop {
            return match self.file.read(page) {
                Ok(0) => Ok(false),
                Ok(count) => {
                    page.truncate(count);
                    Ok(true)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(refused(&self.path, "read", error)),
            };
        }
    }
}
