//! Code lengths of an optimal prefix code: Huffman's algorithm, limited to a maximum length.

/// More symbols than any alphabet has.
pub(crate) const MAX_SYMBOLS: usize = 512;
/// More bits than the longest code has without a limit: the counts of a page make no tree that deep.
pub(crate) const MAX_LENGTHS: usize = 32;

/// Larger than any count; stands for a missing node.
const NONE: u32 = u32::MAX;

/// Counts of symbols, and the tree built over them.
pub(crate) struct HuffmanTree {
    /// How often each symbol occurs, in ascending order.
    pub(crate) counts: [u32; MAX_SYMBOLS],
    /// Counts of the internal nodes in the order of their making.
    nodes: [u32; MAX_SYMBOLS + 2],
    /// Of each internal node, the first internal node that had no parent when it was made.
    firsts: [u16; MAX_SYMBOLS],
}

impl HuffmanTree {
    pub(crate) const fn new() -> Self {
        Self { counts: [0; MAX_SYMBOLS], nodes: [0; MAX_SYMBOLS + 2], firsts: [0; MAX_SYMBOLS] }
    }

    /// Returns how many codes of each length an optimal code has for the first `len` counts, at least two; no
    /// length is above `limit`.
    ///
    /// Uses two queues, the symbols and the internal nodes, both of which are sorted by count. Nodes of one
    /// depth are next to each other, so they are counted without following each node to the root.
    pub(crate) fn count_lengths(&mut self, len: usize, limit: usize) -> [u16; MAX_LENGTHS] {
        let Self { counts, nodes, firsts } = self;
        counts[len..len + 2].fill(NONE);
        nodes[..2].fill(NONE);
        let (mut leaf, mut first) = (0, 0);
        let inner = len - 1;
        for node in 0..inner {
            firsts[node % MAX_SYMBOLS] = first as u16;
            let [leaf1, leaf2] = [counts[leaf % MAX_SYMBOLS], counts[(leaf + 1) % MAX_SYMBOLS]];
            let [node1, node2] = [nodes[first % MAX_SYMBOLS], nodes[first % MAX_SYMBOLS + 1]];
            // Two leaves, two nodes or one of each; mostly the same case as the time before.
            nodes[node % MAX_SYMBOLS] = if leaf2 <= node1 {
                leaf += 2;
                leaf1 + leaf2
            } else if node2 < leaf1 {
                first += 2;
                node1 + node2
            } else {
                leaf += 1;
                first += 1;
                leaf1 + node1
            };
            nodes[node % MAX_SYMBOLS + 2] = NONE;
        }
        let mut per_length = [0_u16; MAX_LENGTHS];
        let (mut low, mut high) = (inner - 1, inner);
        let mut depth = 1;
        let mut too_long = 0;
        loop {
            let below = usize::from(firsts[low % MAX_SYMBOLS]);
            let leaves = (2 * (high - low) - (low - below)) as u16;
            if depth <= limit {
                per_length[depth % MAX_LENGTHS] = leaves;
            } else {
                too_long += leaves;
            }
            depth += 1;
            if below == low {
                break;
            }
            (low, high) = (below, low);
        }
        if too_long > 0 {
            limit_lengths(&mut per_length, limit, too_long);
        }
        per_length
    }
}

/// Shortens the `too_long` codes to `limit` bits, and lengthens others until the lengths satisfy Kraft's
/// inequality.
#[cold]
fn limit_lengths(per_length: &mut [u16; MAX_LENGTHS], limit: usize, too_long: u16) {
    per_length[limit] += too_long;
    let taken: usize = (1..=limit).map(|length| usize::from(per_length[length]) << (limit - length)).sum();
    for _ in 1 << limit..taken {
        // One code becomes two that are longer by one bit; a code of the maximum length takes the second.
        if let Some(length) = (1..limit).rev().find(|&length| per_length[length] > 0) {
            per_length[length] -= 1;
            per_length[length + 1] += 2;
            per_length[limit] -= 1;
        }
    }
}
