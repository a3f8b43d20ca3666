use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zstd_safe::{CCtx, CParameter};

use super::block::{BlockHeader, BlockKind, MAGIC};
use crate::comms::Comms;
use crate::error::TraceError;
use crate::info::{KernelCounters, MachineInfo, Run};
use crate::symbols::Symbols;

/// Compresses blocks. Each thread has its own, so that compression needs no lock.
pub(crate) struct BlockEncoder {
    path: PathBuf,
    zstd: CCtx<'static>,
    bytes: Vec<u8>,
}

impl BlockEncoder {
    /// Compresses with this zstd level; `path` is for error messages.
    pub(crate) fn new(path: &Path, level: i32) -> Result<Self, TraceError> {
        let mut zstd = crate::zstd::compressor().map_err(TraceError::io(path, "compress"))?;
        for parameter in [CParameter::CompressionLevel(level), CParameter::ChecksumFlag(true)] {
            // All versions of zstd 1 know both parameters.
            let _ = zstd.set_parameter(parameter);
        }
        Ok(Self { path: path.to_owned(), zstd, bytes: Vec::new() })
    }

    /// Compresses sub-buffers of a CPU. Blocks of a CPU must be appended in time order.
    ///
    /// # Errors
    /// [`TraceError::Encode`] if `pages` exceeds the size of a block.
    pub(crate) fn pages(&mut self, cpu: u32, pages: &[u8]) -> Result<&[u8], TraceError> {
        self.block(BlockKind::SubBuffers, cpu, pages)
    }

    fn block(&mut self, kind: BlockKind, cpu: u32, raw: &[u8]) -> Result<&[u8], TraceError> {
        let fail = |what: String| TraceError::Encode { path: self.path.clone(), what };
        let len = u32::try_from(raw.len()).ok().filter(|&len| len <= super::block::MAX_RAW);
        let len = len.ok_or_else(|| fail(format!("{} bytes exceed the size of a block", raw.len())))?;
        self.bytes.resize(BlockHeader::SIZE + zstd_safe::compress_bound(raw.len()), 0);
        let (header, frame) = self.bytes.split_at_mut(BlockHeader::SIZE);
        let compressed = self.zstd.compress2(frame, raw);
        let count = compressed.map_err(|code| fail(format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        // A frame stays far below 4 GiB: blocks are at most 64 MiB.
        header.copy_from_slice(&BlockHeader::bytes(kind, cpu, count as u32, len));
        Ok(self.bytes.get(..BlockHeader::SIZE + count).unwrap_or_default())
    }
}

/// Writes a recording, block by block. All methods fail with [`TraceError::Io`] if a write fails.
pub struct PhtWriter<W> {
    out: W,
    encoder: BlockEncoder,
    written: u64,
}

impl<W: Write> PhtWriter<W> {
    /// Writes the magic number. `level` is the zstd level; `path` is for error messages.
    pub fn new(mut out: W, path: &Path, level: i32) -> Result<Self, TraceError> {
        out.write_all(MAGIC).map_err(TraceError::io(path, "write"))?;
        Ok(Self { out, encoder: BlockEncoder::new(path, level)?, written: MAGIC.len() as u64 })
    }

    /// Returns the bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the underlying writer.
    pub(crate) fn get_ref(&self) -> &W {
        &self.out
    }

    /// Appends a block made by a [`BlockEncoder`].
    pub(crate) fn append(&mut self, block: &[u8]) -> Result<(), TraceError> {
        self.written += block.len() as u64;
        self.out.write_all(block).map_err(TraceError::io(&self.encoder.path, "write"))
    }

    /// Writes the machine; must be the first block.
    pub fn machine(&mut self, machine: &MachineInfo) -> Result<(), TraceError> {
        self.json(BlockKind::Machine, machine)
    }

    /// Writes the text of `header_page`.
    pub fn header_page(&mut self, text: &str) -> Result<(), TraceError> {
        self.block(BlockKind::HeaderPage, 0, text.as_bytes())
    }

    /// Writes the text of a `format` file.
    pub fn format(&mut self, system: &str, text: &str) -> Result<(), TraceError> {
        self.block(BlockKind::Format, 0, &[system.as_bytes(), b"\0", text.as_bytes()].concat())
    }

    /// Writes sub-buffers of a CPU, in time order.
    pub fn pages(&mut self, cpu: u32, pages: &[u8]) -> Result<(), TraceError> {
        self.block(BlockKind::SubBuffers, cpu, pages)
    }

    /// Writes the cgroup of each task, and the paths of cgroup ids.
    pub(crate) fn cgroups(
        &mut self,
        tasks: &BTreeMap<i32, String>,
        ids: &BTreeMap<u64, String>,
    ) -> Result<(), TraceError> {
        let tasks = tasks.iter().map(|(pid, path)| format!("pid {pid} {path}\n"));
        let ids = ids.iter().map(|(id, path)| format!("id {id} {path}\n"));
        let text: String = tasks.chain(ids).collect();
        self.block(BlockKind::Cgroups, 0, text.as_bytes())
    }

    /// Writes task names.
    pub(crate) fn comms(&mut self, comms: &Comms) -> Result<(), TraceError> {
        let mut lines: Vec<_> = comms.iter().collect();
        lines.sort_unstable();
        let text: String = lines.iter().map(|(pid, name)| format!("{pid} {name}\n")).collect();
        self.block(BlockKind::Tasks, 0, text.as_bytes())
    }

    /// Writes the symbols of functions that occur in events.
    pub fn symbols(&mut self, symbols: &Symbols) -> Result<(), TraceError> {
        self.block(BlockKind::Symbols, 0, symbols.text().as_bytes())
    }

    /// Writes the kernel counters before tracing.
    pub(crate) fn counters_before(&mut self, counters: &KernelCounters) -> Result<(), TraceError> {
        self.json(BlockKind::CountersBefore, counters)
    }

    /// Writes the kernel counters after tracing.
    pub(crate) fn counters_after(&mut self, counters: &KernelCounters) -> Result<(), TraceError> {
        self.json(BlockKind::CountersAfter, counters)
    }

    /// Writes a run of the command.
    pub(crate) fn run(&mut self, run: &Run) -> Result<(), TraceError> {
        self.json(BlockKind::Run, run)
    }

    /// Completes the recording; without this, readers report it as truncated. `lost` is the number of lost
    /// events by CPU.
    pub fn finish(mut self, lost: &BTreeMap<u32, u64>) -> Result<W, TraceError> {
        self.json(BlockKind::End, lost)?;
        self.out.flush().map_err(TraceError::io(&self.encoder.path, "write"))?;
        Ok(self.out)
    }

    fn json(&mut self, kind: BlockKind, value: &impl Serialize) -> Result<(), TraceError> {
        let text = serde_json::to_vec(value).map_err(|error| TraceError::Encode {
            path: self.encoder.path.clone(),
            what: error.to_string(),
        })?;
        self.block(kind, 0, &text)
    }

    fn block(&mut self, kind: BlockKind, cpu: u32, raw: &[u8]) -> Result<(), TraceError> {
        let block = self.encoder.block(kind, cpu, raw)?;
        self.written += block.len() as u64;
        self.out.write_all(block).map_err(TraceError::io(&self.encoder.path, "write"))
    }
}
