/// Magic number of a recording: a non-ASCII byte, a name, and the version.
pub(crate) const MAGIC: &[u8; 8] = b"\x89PHTRC\n\x01";

/// Magic number of a block, so that readers detect damage at block boundaries.
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"PHTB");

/// Upper bound of a block's uncompressed size; the writer's blocks are far smaller.
pub(super) const MAX_RAW: u32 = 64 << 20;

/// Contents of a block; see the [module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum BlockKind {
    /// JSON: the machine.
    Machine = 1,
    /// Text of `header_page`.
    HeaderPage = 2,
    /// Text of a `format` file.
    Format = 3,
    /// Sub-buffers of a CPU.
    SubBuffers = 4,
    /// PIDs and task names.
    Tasks = 5,
    Symbols = 6,
    /// Kernel counters before tracing.
    CountersBefore = 7,
    /// Kernel counters after tracing.
    CountersAfter = 8,
    /// A run of the command.
    Run = 9,
    /// End of the recording.
    End = 10,
    /// Control groups.
    Cgroups = 11,
}

impl BlockKind {
    fn from_number(number: u16) -> Option<Self> {
        use BlockKind as Kind;
        [
            Kind::Machine,
            Kind::HeaderPage,
            Kind::Format,
            Kind::SubBuffers,
            Kind::Tasks,
            Kind::Symbols,
            Kind::CountersBefore,
            Kind::CountersAfter,
            Kind::Run,
            Kind::End,
            Kind::Cgroups,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == number)
    }
}

/// Block header: magic u32, kind u16, zero u16, cpu u32, stored u32, raw u32, reserved u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// Contents; `None` if unknown to this version.
    pub(super) kind: Option<BlockKind>,
    /// The CPU, for sub-buffers.
    pub(super) cpu: u32,
    /// Size in bytes of the zstd frame that follows.
    pub(super) stored: u32,
    /// Uncompressed size in bytes.
    pub(super) raw: u32,
}

impl BlockHeader {
    /// Size of the header in bytes.
    pub(super) const SIZE: usize = 24;

    /// Decodes a header. Returns `None` if `bytes` are not one.
    pub(super) fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self {
            kind: BlockKind::from_number(u16::from_le_bytes([bytes[4], bytes[5]])),
            cpu: word(8),
            stored: word(12),
            raw: word(16),
        };
        (word(0) == BLOCK_MAGIC && header.raw <= MAX_RAW).then_some(header)
    }

    pub(super) fn bytes(kind: BlockKind, cpu: u32, stored: u32, raw: u32) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&BLOCK_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&(kind as u16).to_le_bytes());
        for (at, word) in [(8, cpu), (12, stored), (16, raw)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}
