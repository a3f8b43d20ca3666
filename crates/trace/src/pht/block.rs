/// The first bytes of a recording: a byte that is no text, a name, and the version.
pub const MAGIC: &[u8; 8] = b"\x89PHTRC\n\x01";

/// Begins every block, so that damage is noticed where it is.
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"PHTB");

/// No block unpacks to more: the writer cuts pages into blocks of far less.
pub(super) const MAX_RAW: u32 = 64 << 20;

/// What a block holds. See the [module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum BlockKind {
    /// JSON of the machine.
    Machine = 1,
    /// `header_page`.
    HeaderPage = 2,
    /// A `format` file.
    Format = 3,
    /// Sub-buffers of a CPU.
    Pages = 4,
    /// PIDs and names.
    Tasks = 5,
    /// Functions.
    Symbols = 6,
    /// Counters at the begin.
    Begin = 7,
    /// Counters at the end.
    End = 8,
    /// A run of the command.
    Run = 9,
    /// The end.
    Done = 10,
    /// Control groups.
    Cgroups = 11,
}

impl BlockKind {
    fn from_number(number: u16) -> Option<Self> {
        use BlockKind::{Begin, Cgroups, Done, End, Format, HeaderPage, Machine, Pages, Run, Symbols, Tasks};
        [Machine, HeaderPage, Format, Pages, Tasks, Symbols, Begin, End, Run, Done, Cgroups]
            .into_iter()
            .find(|kind| *kind as u16 == number)
    }
}

/// What precedes a block's bytes: magic u32, kind u16, zero u16, cpu u32, stored u32, raw u32, reserved u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// What it holds; none if this program does not know.
    pub kind: Option<BlockKind>,
    /// The CPU, for pages.
    pub cpu: u32,
    /// Bytes of the zstd frame that follows.
    pub stored: u32,
    /// Bytes it unpacks to.
    pub raw: u32,
}

impl BlockHeader {
    /// Bytes in the file.
    pub const SIZE: usize = 24;

    /// Reads a header; none if the bytes are not one.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
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
