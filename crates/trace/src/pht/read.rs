use std::collections::BTreeMap;

use zstd_safe::DCtx;

use super::block::{BlockHeader, BlockKind, MAGIC};
use crate::binary::BinaryTrace;
use crate::comms::Comms;
use crate::error::TraceError;
use crate::format::{EventFormat, Formats};
use crate::info::{Origin, Run, TraceInfo};
use crate::input::Input;
use crate::merge::{Merge, SubBufferSource};
use crate::ring::SubBufferLayout;
use crate::symbols::Symbols;
use crate::zstd;

/// Location of a block in the file.
#[derive(Debug, Clone, Copy)]
struct Location {
    /// Offset of the zstd frame.
    offset: u64,
    header: BlockHeader,
}

/// Opens a recording: scans its blocks and reads all but the events.
///
/// # Errors
/// [`TraceError`] if the recording has no `header_page`. A truncated file is read up to the truncation, with a warning.
pub(crate) fn open(input: Input) -> Result<BinaryTrace<Blocks>, TraceError> {
    let mut info = TraceInfo { origin: Origin::Recording, ..TraceInfo::default() };
    let blocks = scan(&input, &mut info.warnings)?;
    let mut context = decompressor(&input)?;
    let mut metadata = Metadata::default();
    let mut cpus = BTreeMap::<u32, Vec<Location>>::new();
    for block in blocks {
        let Some(kind) = block.header.kind else { continue };
        if kind == BlockKind::SubBuffers {
            cpus.entry(block.header.cpu).or_default().push(block);
            continue;
        }
        let mut raw = Vec::new();
        if let Err(what) = decompress(&input, &mut context, block, &mut raw)? {
            info.warnings.push(format!("the block at {:#x} is damaged and skipped: {what}", block.offset));
            continue;
        }
        let text = String::from_utf8_lossy(&raw);
        metadata.add(kind, &text, &mut info).map_err(|what| input.format_error(block.offset, what))?;
    }
    let Some(layout) = metadata.layout else {
        return Err(input.format_error(0, "the recording is truncated before its header_page: record again"));
    };
    if !metadata.complete {
        info.warnings.push(
            "the recording is truncated: it has no end block, and its last events may be missing".into(),
        );
    }
    let sources =
        cpus.into_iter().map(|(cpu, blocks)| Ok((cpu, Blocks::new(input.clone(), blocks, layout)?)));
    let sources = sources.collect::<Result<Vec<_>, TraceError>>()?;
    let merge = Merge::new(sources, layout, &metadata.formats);
    Ok(BinaryTrace { info, formats: metadata.formats, comms: metadata.comms, merge })
}

/// Contents of the blocks other than sub-buffers.
#[derive(Default)]
struct Metadata {
    formats: Formats,
    comms: Comms,
    layout: Option<SubBufferLayout>,
    complete: bool,
}

impl Metadata {
    fn add(&mut self, kind: BlockKind, text: &str, info: &mut TraceInfo) -> Result<(), String> {
        match kind {
            BlockKind::Machine => {
                info.machine = json(text, "the machine")?;
            }
            BlockKind::HeaderPage => {
                self.layout = Some(
                    SubBufferLayout::parse(text, info.machine.big_endian)
                        .map_err(|error| error.to_string())?,
                );
            }
            BlockKind::Format => {
                let (system, text) =
                    text.split_once('\0').ok_or("expected an event system and a zero byte")?;
                self.formats.add(EventFormat::parse(system, text).map_err(|error| error.to_string())?);
            }
            BlockKind::Tasks => {
                for (pid, name) in Comms::parse(text).iter() {
                    self.comms.insert(pid, name);
                }
            }
            BlockKind::Symbols => info.symbols = Symbols::from_kallsyms(text.to_owned()),
            BlockKind::Cgroups => {
                for line in text.lines() {
                    let mut words = line.splitn(3, ' ');
                    match (words.next(), words.next(), words.next()) {
                        (Some("pid"), Some(pid), Some(path)) => {
                            if let Ok(pid) = pid.parse() {
                                info.task_cgroups.insert(pid, path.to_owned());
                            }
                        }
                        (Some("id"), Some(id), Some(path)) => {
                            if let Ok(id) = id.parse() {
                                info.cgroup_ids.insert(id, path.to_owned());
                            }
                        }
                        _ => {}
                    }
                }
            }
            BlockKind::CountersBefore => info.begin = Some(json(text, "the counters")?),
            BlockKind::CountersAfter => info.end = Some(json(text, "the counters")?),
            BlockKind::Run => info.runs.push(json::<Run>(text, "a run")?),
            BlockKind::End => {
                info.lost_by_cpu = json(text, "the lost events")?;
                self.complete = true;
            }
            BlockKind::SubBuffers => {}
        }
        Ok(())
    }
}

fn json<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{what} does not parse: {error}"))
}

/// Lists the blocks up to where the file is truncated or damaged.
fn scan(input: &Input, warnings: &mut Vec<String>) -> Result<Vec<Location>, TraceError> {
    let mut blocks = Vec::new();
    let mut offset = MAGIC.len() as u64;
    while offset < input.len() {
        let mut bytes = [0; BlockHeader::SIZE];
        if input.read_at(offset, &mut bytes)? < bytes.len() {
            break;
        }
        let Some(header) = BlockHeader::parse(&bytes) else {
            warnings
                .push(format!("the file is damaged at {offset:#x}: expected a block; the rest is skipped"));
            break;
        };
        let frame = offset + BlockHeader::SIZE as u64;
        offset = frame + u64::from(header.stored);
        if offset > input.len() {
            break;
        }
        blocks.push(Location { offset: frame, header });
    }
    Ok(blocks)
}

fn decompressor(input: &Input) -> Result<DCtx<'static>, TraceError> {
    zstd::decompressor().map_err(TraceError::io(input.path(), "decompress"))
}

/// Decompresses a block into `raw`. The inner error means that the block is damaged.
fn decompress(
    input: &Input,
    context: &mut DCtx<'static>,
    block: Location,
    raw: &mut Vec<u8>,
) -> Result<Result<(), String>, TraceError> {
    let stored = input.read_exact_at(block.offset, u64::from(block.header.stored), "a block")?;
    Ok(zstd::decompress(context, &stored, block.header.raw as usize, raw))
}

/// The sub-buffers of one CPU.
pub(crate) struct Blocks {
    input: Input,
    blocks: std::vec::IntoIter<Location>,
    context: DCtx<'static>,
    raw: Vec<u8>,
    at: usize,
    sub_buffer_size: usize,
}

impl Blocks {
    fn new(input: Input, blocks: Vec<Location>, layout: SubBufferLayout) -> Result<Self, TraceError> {
        let (context, sub_buffer_size) = (decompressor(&input)?, layout.sub_buffer_size as usize);
        Ok(Self { input, blocks: blocks.into_iter(), context, raw: Vec::new(), at: 0, sub_buffer_size })
    }
}

impl SubBufferSource for Blocks {
    fn next_sub_buffer(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError> {
        page.clear();
        while self.at >= self.raw.len() {
            let Some(block) = self.blocks.next() else { return Ok(false) };
            self.at = 0;
            if decompress(&self.input, &mut self.context, block, &mut self.raw)?.is_err() {
                // An empty sub-buffer counts as damaged.
                self.raw.clear();
                return Ok(true);
            }
        }
        let end = self.raw.len().min(self.at + self.sub_buffer_size);
        page.extend_from_slice(&self.raw[self.at..end]);
        self.at = end;
        Ok(true)
    }
}
