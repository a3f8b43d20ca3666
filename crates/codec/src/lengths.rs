//! How long the codes of the best prefix code are.

/// More than any alphabet has.
pub(crate) const SYMBOLS: usize = 512;
/// More than the longest code has without a limit: a page's counts make no such deep tree.
pub(crate) const LENGTHS: usize = 32;

/// Larger than any count: there is none.
const NONE: u32 = u32::MAX;

/// Symbols, and the tree made of them.
pub(crate) struct Tree {
    /// How often symbols occur, the rarest first.
    pub(crate) counts: [u32; SYMBOLS],
    /// Of each inner node, in the order they are made: its count, and the first node not yet taken then.
    nodes: [u32; SYMBOLS + 2],
    firsts: [u16; SYMBOLS],
}

impl Tree {
    pub(crate) const fn new() -> Self {
        Self { counts: [0; SYMBOLS], nodes: [0; SYMBOLS + 2], firsts: [0; SYMBOLS] }
    }

    /// How many codes of each length are best for the first `len` counts, at least two: of `limit` bits at most.
    ///
    /// Huffman's algorithm on two queues, the symbols and the nodes made of them, which come out sorted as well. Nodes
    /// of one depth stand side by side, so their number is known without following each node to the root.
    pub(crate) fn lengths(&mut self, len: usize, limit: usize) -> [u16; LENGTHS] {
        let Self { counts, nodes, firsts } = self;
        counts[len..len + 2].fill(NONE);
        nodes[..2].fill(NONE);
        let (mut leaf, mut first) = (0, 0);
        let inner = len - 1;
        for node in 0..inner {
            firsts[node % SYMBOLS] = first as u16;
            let [leaf1, leaf2] = [counts[leaf % SYMBOLS], counts[(leaf + 1) % SYMBOLS]];
            let [node1, node2] = [nodes[first % SYMBOLS], nodes[first % SYMBOLS + 1]];
            // Two leaves, two nodes or one of each. Mostly as the time before.
            nodes[node % SYMBOLS] = if leaf2 <= node1 {
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
            nodes[node % SYMBOLS + 2] = NONE;
        }
        let mut per_length = [0_u16; LENGTHS];
        let (mut low, mut high) = (inner - 1, inner);
        let mut depth = 1;
        let mut too_long = 0;
        loop {
            let below = usize::from(firsts[low % SYMBOLS]);
            let leaves = (2 * (high - low) - (low - below)) as u16;
            if depth <= limit {
                per_length[depth % LENGTHS] = leaves;
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
            cut(&mut per_length, limit, too_long);
        }
        per_length
    }
}

/// Gives codes that would be too long the greatest length, and lengthens others for the room that takes.
#[cold]
fn cut(per_length: &mut [u16; LENGTHS], limit: usize, too_long: u16) {
    per_length[limit] += too_long;
    let taken: usize = (1..=limit).map(|length| usize::from(per_length[length]) << (limit - length)).sum();
    for _ in 1 << limit..taken {
        // One code becomes two that are longer by one, the second of which a longest code moves to.
        if let Some(length) = (1..limit).rev().find(|&length| per_length[length] > 0) {
            per_length[length] -= 1;
            per_length[length + 1] += 2;
            per_length[limit] -= 1;
        }
    }
}
