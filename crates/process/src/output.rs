//! The file a core goes to.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagehaul_output::{CreateOptions, Naming, NewFile, Special};

use crate::error::ProcessError;
use crate::error::failed;
use crate::pack::{Layout, Packed};
use crate::seekable::{self, Table, Zeros};

/// Where a core goes.
#[derive(Debug, Clone)]
pub enum Target {
    /// A file; one that exists is replaced only if `overwrite`.
    File {
        path: PathBuf,
        /// Whether it may exist.
        overwrite: bool,
    },
    /// A file that does not exist. Whatever has its name is an error and is not opened.
    New { path: PathBuf },
    /// Standard output.
    Stdout,
    /// A pipe to what takes the core elsewhere.
    Pipe {
        /// Where it goes, in messages.
        name: PathBuf,
        /// The end that is written to.
        pipe: Arc<File>,
    },
}

/// The name of standard output in messages.
const STDOUT: &str = "standard output";

/// An open output. Frames and streams are appended to it in order; packing threads write the tiles of sparse files.
pub(crate) struct Output {
    file: Arc<File>,
    /// What messages call a stream.
    stream: PathBuf,
    /// `None` for streams.
    named: Option<NewFile>,
    /// A regular file, which can be truncated and have holes.
    regular: bool,
    /// `None` for plain ELF.
    level: Option<i32>,
    table: Table,
    appended: u64,
    /// Zeros for streams.
    zeros: Vec<u8>,
    /// Zeros for frames.
    zero_frames: Option<Zeros>,
}

impl Output {
    pub(crate) fn open(target: &Target, level: Option<i32>) -> Result<Self, ProcessError> {
        let (file, stream, named, regular) = match target {
            Target::File { path, .. } | Target::New { path } => {
                let (overwrite, special) = match target {
                    Target::File { overwrite, .. } => (*overwrite, Special::Any),
                    _ => (false, Special::No),
                };
                let options = CreateOptions {
                    naming: Naming::AtOnceIfNew,
                    overwrite,
                    special,
                    private: true,
                    sources: &[],
                };
                let named = NewFile::create(path, options)?;
                let meta = named.file().metadata().map_err(failed(path, "examine"))?;
                (Arc::clone(named.file()), PathBuf::new(), Some(named), meta.is_file())
            }
            Target::Stdout => {
                let file = std::io::stdout().as_fd().try_clone_to_owned();
                let file = file.map_err(failed(Path::new(STDOUT), "write to"))?;
                (Arc::new(File::from(file)), PathBuf::from(STDOUT), None, false)
            }
            Target::Pipe { name, pipe } => (Arc::clone(pipe), name.clone(), None, false),
        };
        Ok(Self {
            file,
            stream,
            named,
            regular,
            level,
            table: Table::default(),
            appended: 0,
            zeros: Vec::new(),
            zero_frames: level.map(|_| Zeros::new()),
        })
    }

    /// The file, for packing threads.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// How tiles are packed for it; `file` is this output's.
    pub(crate) fn layout<'a>(&self, file: &'a File) -> Layout<'a> {
        match self.level {
            Some(level) => Layout::Frames(level),
            None if self.regular => Layout::Sparse(file),
            None => Layout::Plain,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.named.as_ref().map_or(&self.stream, NewFile::path)
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> String {
        self.path().display().to_string()
    }

    /// Bytes written so far.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns whether its header can be rewritten, and so have the incomplete mark.
    pub(crate) fn can_be_marked(&self) -> bool {
        self.regular
    }

    /// Appends a packed tile.
    pub(crate) fn append(&mut self, packed: &Packed) -> io::Result<()> {
        let mut file = &*self.file;
        match (self.level, packed.is_hole) {
            (None, _) if self.regular => self.appended += packed.counts.written,
            (None, true) => {
                self.zeros.resize(1 << 20, 0);
                let mut rest = packed.length;
                while rest > 0 {
                    let part = rest.min(self.zeros.len() as u64);
                    file.write_all(&self.zeros[..part as usize])?;
                    rest -= part;
                }
                self.appended += packed.length;
            }
            (Some(_), true) => {
                let frame =
                    self.zero_frames.as_ref().map(|zeros| zeros.frame(packed.length)).unwrap_or_default();
                file.write_all(&frame)?;
                self.table.push(frame.len(), packed.length);
                self.appended += frame.len() as u64;
            }
            (level, false) => {
                file.write_all(&packed.buffer)?;
                self.appended += packed.buffer.len() as u64;
                if level.is_some() {
                    self.table.push(packed.buffer.len(), packed.length);
                }
            }
        }
        Ok(())
    }

    /// Completes the core: its size, the table of frames, and, once everything is on the disk, the header without its mark.
    /// Returns the size of the file.
    pub(crate) fn finish(&mut self, size: u64, header: &[u8]) -> io::Result<u64> {
        if self.level.is_some() {
            let table = self.table.encode();
            (&*self.file).write_all(&table)?;
            self.appended += table.len() as u64;
        }
        if self.regular {
            if self.level.is_none() {
                self.file.set_len(size)?;
            }
            self.file.sync_data()?;
            match self.level {
                Some(_) => self.file.write_all_at(&seekable::raw_frame(header), 0)?,
                None => self.file.write_all_at(header, 0)?,
            }
            self.file.sync_data()?;
        }
        Ok(self.appended)
    }

    /// Names a complete core, if it has no name yet.
    pub(crate) fn commit(&mut self) -> Result<(), ProcessError> {
        self.named.as_mut().map_or(Ok(()), |named| Ok(named.commit()?))
    }

    /// Keeps an incomplete core; [`path`](Self::path) is then its path.
    pub(crate) fn keep(&mut self) -> Result<(), ProcessError> {
        self.named.as_mut().map_or(Ok(()), |named| Ok(named.keep()?))
    }

    /// Removes a file that holds nothing of use.
    pub(crate) fn discard(&self) {
        if let Some(named) = &self.named {
            named.discard();
        }
    }
}
