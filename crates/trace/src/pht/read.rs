use std::collections::BTreeMap;

use zstd_safe::DCtx;

use super::block::{BlockHeader, BlockKind, MAGIC};
use super::write::MachineInfo;
use crate::dat::zstd_bound;
use crate::info::{Origin, Run, TraceInfo};
use crate::ring::SubBufferLayout;
use crate::{
    Comms, Event, EventFormat, EventSource, Formats, Input, Losses, Merge, SubBufferSource, Symbols,
    TraceError,
};

/// Reads our own recordings.
pub struct PhtReader {
    info: TraceInfo,
    formats: Formats,
    comms: Comms,
    merge: Merge<Blocks>,
}

/// A block in the file.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Of the frame.
    offset: u64,
    header: BlockHeader,
}

impl PhtReader {
    /// Opens a recording: looks through its blocks, and reads all but the events.
    ///
    /// # Errors
    /// [`TraceError`] if it does not say how its events are laid out. A cut file is read up to the cut, with a remark.
    pub fn open(input: Input) -> Result<Self, TraceError> {
        let mut info = TraceInfo { origin: Origin::Recording, ..TraceInfo::default() };
        let places = places(&input, &mut info.remarks)?;
        let mut zstd = DCtx::create();
        let mut reader =
            Parts { formats: Formats::default(), comms: Comms::default(), layout: None, done: false };
        let mut cpus = BTreeMap::<u32, Vec<Place>>::new();
        let mut big_endian = false;
        for place in places {
            let Some(kind) = place.header.kind else { continue };
            if kind == BlockKind::Pages {
                cpus.entry(place.header.cpu).or_default().push(place);
                continue;
            }
            let mut raw = Vec::new();
            if let Err(what) = unpack(&input, &mut zstd, place, &mut raw)? {
                info.remarks.push(format!("a block at {:#x} is damaged ({what}) and left out", place.offset));
                continue;
            }
            let text = String::from_utf8_lossy(&raw);
            let fault = |what: String| input.fault(place.offset, what);
            reader.take(kind, &text, &mut info, &mut big_endian).map_err(fault)?;
        }
        let Some(layout) = reader.layout else {
            return Err(
                input.fault(0, "the recording ends before it says how events are laid out: record again")
            );
        };
        if !reader.done {
            info.remarks
                .push("the recording was cut off: it has no end, and the last events may be missing".into());
        }
        let sources = cpus.into_iter().map(|(cpu, places)| (cpu, Blocks::new(input.clone(), places, layout)));
        let merge = Merge::new(sources, layout, &reader.formats);
        Ok(Self { info, formats: reader.formats, comms: reader.comms, merge })
    }

    /// What the recording says of the machine.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }
}

/// What blocks other than pages add up to.
struct Parts {
    formats: Formats,
    comms: Comms,
    layout: Option<SubBufferLayout>,
    done: bool,
}

impl Parts {
    fn take(
        &mut self,
        kind: BlockKind,
        text: &str,
        info: &mut TraceInfo,
        big_endian: &mut bool,
    ) -> Result<(), String> {
        match kind {
            BlockKind::Machine => {
                let machine: MachineInfo = json(text, "the machine")?;
                *big_endian = machine.big_endian;
                info.release = Some(machine.release);
                info.hostname = Some(machine.hostname);
                info.machine = Some(machine.machine);
                info.clock = Some(machine.clock);
                info.cpus = Some(machine.cpus);
                info.command = machine.command;
                info.settings = machine.settings;
            }
            BlockKind::HeaderPage => {
                self.layout =
                    Some(SubBufferLayout::parse(text, *big_endian).map_err(|error| error.to_string())?);
            }
            BlockKind::Format => {
                let (system, text) = text.split_once('\0').ok_or("expected a subsystem and a zero byte")?;
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
            BlockKind::Begin => info.begin = Some(json(text, "the counters")?),
            BlockKind::End => info.end = Some(json(text, "the counters")?),
            BlockKind::Run => info.runs.push(json::<Run>(text, "a run")?),
            BlockKind::Done => {
                info.lost_by_cpu = json(text, "the lost events")?;
                self.done = true;
            }
            BlockKind::Pages => {}
        }
        Ok(())
    }
}

fn json<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{what} cannot be understood: {error}"))
}

/// All blocks, up to where the file is cut or damaged.
fn places(input: &Input, remarks: &mut Vec<String>) -> Result<Vec<Place>, TraceError> {
    let mut places = Vec::new();
    let mut offset = MAGIC.len() as u64;
    while offset < input.len() {
        let mut bytes = [0; BlockHeader::SIZE];
        if input.read_at(offset, &mut bytes)? < bytes.len() {
            break;
        }
        let Some(header) = BlockHeader::parse(&bytes) else {
            remarks.push(format!("the file is damaged at {offset:#x}: what follows is left out"));
            break;
        };
        let frame = offset + BlockHeader::SIZE as u64;
        offset = frame + u64::from(header.stored);
        if offset > input.len() {
            break;
        }
        places.push(Place { offset: frame, header });
    }
    Ok(places)
}

/// Unpacks a block into `raw`. The inner error is damage.
fn unpack(
    input: &Input,
    zstd: &mut DCtx<'static>,
    place: Place,
    raw: &mut Vec<u8>,
) -> Result<Result<(), String>, TraceError> {
    let stored = input.exactly(place.offset, u64::from(place.header.stored), "a block")?;
    if u64::from(place.header.raw) > zstd_bound(stored.len()) {
        return Ok(Err(format!("{} bytes cannot unpack to {}", stored.len(), place.header.raw)));
    }
    raw.resize(place.header.raw as usize, 0);
    Ok(match zstd.decompress(raw.as_mut_slice(), &stored) {
        Ok(count) if count == place.header.raw as usize => Ok(()),
        Ok(count) => Err(format!("{count} bytes instead of {}", place.header.raw)),
        Err(code) => Err(zstd_safe::get_error_name(code).to_owned()),
    })
}

/// The sub-buffers of one CPU.
struct Blocks {
    input: Input,
    places: std::vec::IntoIter<Place>,
    zstd: DCtx<'static>,
    raw: Vec<u8>,
    at: usize,
    sub_buffer_size: usize,
}

impl Blocks {
    fn new(input: Input, places: Vec<Place>, layout: SubBufferLayout) -> Self {
        let sub_buffer_size = layout.sub_buffer_size as usize;
        Self {
            input,
            places: places.into_iter(),
            zstd: DCtx::create(),
            raw: Vec::new(),
            at: 0,
            sub_buffer_size,
        }
    }
}

impl SubBufferSource for Blocks {
    fn next_sub_buffer(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError> {
        page.clear();
        while self.at >= self.raw.len() {
            let Some(place) = self.places.next() else { return Ok(false) };
            self.at = 0;
            if unpack(&self.input, &mut self.zstd, place, &mut self.raw)?.is_err() {
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

impl EventSource for PhtReader {
    #[inline]
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        self.merge.next_event(&self.formats, &self.comms, u64::MAX)
    }

    fn formats(&self) -> &Formats {
        &self.formats
    }

    fn comms(&self) -> &Comms {
        &self.comms
    }

    fn losses(&self) -> Losses {
        self.merge.losses()
    }
}
