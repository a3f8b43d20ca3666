use crate::class::Kind;

/// `1 << order` pages of one kind, the first of which is `pfn`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub pfn: u64,
    pub order: u32,
    pub kind: Kind,
}
