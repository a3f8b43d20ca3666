use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zstd_safe::{CCtx, CParameter};

use super::block::{BlockHeader, BlockKind, MAGIC};
use crate::{Comms, KernelCounters, Run, Symbols, TraceError};

/// What a recording says of the machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineInfo {
    /// `uname -r`.
    pub release: String,
    /// `uname -n`.
    pub hostname: String,
    /// `uname -m`.
    pub machine: String,
    /// The clock of time stamps.
    pub clock: String,
    /// Words are big-endian.
    pub big_endian: bool,
    /// CPUs with a buffer.
    pub cpus: u32,
    /// The recorded command line.
    pub command: Vec<String>,
    /// Kernel settings.
    pub settings: BTreeMap<String, String>,
}

/// Makes blocks: a thread's own, so that packing needs no lock.
pub struct BlockEncoder {
    zstd: CCtx<'static>,
    bytes: Vec<u8>,
}

impl BlockEncoder {
    /// Packs with this level of zstd's.
    pub fn new(level: i32) -> Self {
        let mut zstd = CCtx::create();
        for parameter in [CParameter::CompressionLevel(level), CParameter::ChecksumFlag(true)] {
            // Both are known to every zstd of version 1.
            let _ = zstd.set_parameter(parameter);
        }
        Self { zstd, bytes: Vec::new() }
    }

    /// The block of sub-buffers of a CPU, later than those packed before.
    ///
    /// # Errors
    /// [`io::Error`] if there are more bytes than a block holds.
    pub fn pages(&mut self, cpu: u32, pages: &[u8]) -> io::Result<&[u8]> {
        self.block(BlockKind::Pages, cpu, pages)
    }

    fn block(&mut self, kind: BlockKind, cpu: u32, raw: &[u8]) -> io::Result<&[u8]> {
        let len = u32::try_from(raw.len()).ok().filter(|&len| len <= super::block::MAX_RAW);
        let len =
            len.ok_or_else(|| io::Error::other(format!("{} bytes are more than a block holds", raw.len())))?;
        self.bytes.resize(BlockHeader::SIZE + zstd_safe::compress_bound(raw.len()), 0);
        let (header, frame) = self.bytes.split_at_mut(BlockHeader::SIZE);
        let packed = self.zstd.compress2(frame, raw);
        let count = packed.map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        // A frame is never 4 GiB: a block is 64 MiB at most.
        header.copy_from_slice(&BlockHeader::bytes(kind, cpu, count as u32, len));
        Ok(self.bytes.get(..BlockHeader::SIZE + count).unwrap_or_default())
    }
}

/// Writes a recording, block by block.
pub struct PhtWriter<W> {
    out: W,
    path: PathBuf,
    packer: BlockEncoder,
    written: u64,
}

impl<W: Write> PhtWriter<W> {
    /// Begins the file. `level` is zstd's.
    ///
    /// # Errors
    /// [`TraceError::Io`] if it cannot be written; `path` is for messages.
    pub fn new(mut out: W, path: &Path, level: i32) -> Result<Self, TraceError> {
        out.write_all(MAGIC).map_err(TraceError::io(path, "write"))?;
        Ok(Self { out, path: path.to_owned(), packer: BlockEncoder::new(level), written: MAGIC.len() as u64 })
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What is written to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// A block that a [`BlockEncoder`] made.
    ///
    /// # Errors
    /// [`TraceError::Io`], as for all that follow.
    pub fn append(&mut self, block: &[u8]) -> Result<(), TraceError> {
        self.written += block.len() as u64;
        self.out.write_all(block).map_err(TraceError::io(&self.path, "write"))
    }

    /// The machine; the first block.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn machine(&mut self, machine: &MachineInfo) -> Result<(), TraceError> {
        self.json(BlockKind::Machine, machine)
    }

    /// The text of `header_page`.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn header_page(&mut self, text: &str) -> Result<(), TraceError> {
        self.block(BlockKind::HeaderPage, 0, text.as_bytes())
    }

    /// The text of a `format` file.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn format(&mut self, system: &str, text: &str) -> Result<(), TraceError> {
        self.block(BlockKind::Format, 0, &[system.as_bytes(), b"\0", text.as_bytes()].concat())
    }

    /// Sub-buffers of a CPU, later than those given before.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn pages(&mut self, cpu: u32, pages: &[u8]) -> Result<(), TraceError> {
        self.block(BlockKind::Pages, cpu, pages)
    }

    /// Control groups: tasks in them, and their ids.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn cgroups(
        &mut self,
        tasks: &BTreeMap<i32, String>,
        ids: &BTreeMap<u64, String>,
    ) -> Result<(), TraceError> {
        let tasks = tasks.iter().map(|(pid, path)| format!("pid {pid} {path}\n"));
        let ids = ids.iter().map(|(id, path)| format!("id {id} {path}\n"));
        let text: String = tasks.chain(ids).collect();
        self.block(BlockKind::Cgroups, 0, text.as_bytes())
    }

    /// Names of tasks.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn comms(&mut self, comms: &Comms) -> Result<(), TraceError> {
        let mut lines: Vec<_> = comms.iter().collect();
        lines.sort_unstable();
        let text: String = lines.iter().map(|(pid, name)| format!("{pid} {name}\n")).collect();
        self.block(BlockKind::Tasks, 0, text.as_bytes())
    }

    /// Functions that events name.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn symbols(&mut self, symbols: &Symbols) -> Result<(), TraceError> {
        self.block(BlockKind::Symbols, 0, symbols.text().as_bytes())
    }

    /// Counters before tracing.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn begin(&mut self, snapshot: &KernelCounters) -> Result<(), TraceError> {
        self.json(BlockKind::Begin, snapshot)
    }

    /// Counters after tracing.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn end(&mut self, snapshot: &KernelCounters) -> Result<(), TraceError> {
        self.json(BlockKind::End, snapshot)
    }

    /// A run of the command.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn run(&mut self, run: &Run) -> Result<(), TraceError> {
        self.json(BlockKind::Run, run)
    }

    /// Ends the file: without this, readers say that it is cut. `lost` are events by CPU.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn finish(mut self, lost: &BTreeMap<u32, u64>) -> Result<W, TraceError> {
        self.json(BlockKind::Done, lost)?;
        self.out.flush().map_err(TraceError::io(&self.path, "write"))?;
        Ok(self.out)
    }

    fn json(&mut self, kind: BlockKind, value: &impl Serialize) -> Result<(), TraceError> {
        let text = serde_json::to_vec(value).map_err(|error| TraceError::Io {
            path: self.path.clone(),
            action: "describe the machine in",
            source: error.into(),
        })?;
        self.block(kind, 0, &text)
    }

    fn block(&mut self, kind: BlockKind, cpu: u32, raw: &[u8]) -> Result<(), TraceError> {
        let block =
            self.packer.block(kind, cpu, raw).map_err(TraceError::io(&self.path, "pack a block of"))?;
        self.written += block.len() as u64;
        self.out.write_all(block).map_err(TraceError::io(&self.path, "write"))
    }
}
