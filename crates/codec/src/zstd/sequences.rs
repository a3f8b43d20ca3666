//! The section of sequences: how the three alphabets are coded, then one stream of all codes and their extra bits.

use super::codes::{Codes, Packed};
use super::fse::{self, Counts, SYMBOLS, Table};
use crate::bits::{Bits, Output, put4};

/// log2 of the states of tables made of a page's own counts. The format allows 9 and 8, which make pages no smaller.
const LENGTH_LOG: u32 = 6;
const OFFSET_LOG: u32 = 5;

/// How a table of probabilities is given.
const PREDEFINED: u32 = 0;
const ONE_SYMBOL: u32 = 1;
const DESCRIBED: u32 = 2;

pub(crate) struct Coder {
    literals: Alphabet,
    lengths: Alphabet,
    offsets: Alphabet,
    tables: Tables,
}

/// The tables of one block. In one place: with a register for each the inner loop has too few.
struct Tables {
    literals: Table,
    lengths: Table,
    offsets: Table,
}

struct Alphabet {
    max_log: u32,
    predefined: Table,
    predefined_costs: [u16; SYMBOLS],
}

/// For an alphabet of one symbol: no bits at all.
static ONE: Table = Table::new();

impl Coder {
    pub(crate) fn new() -> Self {
        Self {
            literals: Alphabet::new(&LITERALS_PREDEFINED, 6, LENGTH_LOG),
            lengths: Alphabet::new(&LENGTHS_PREDEFINED, 6, LENGTH_LOG),
            offsets: Alphabet::new(&OFFSETS_PREDEFINED, 5, OFFSET_LOG),
            tables: Tables { literals: Table::new(), lengths: Table::new(), offsets: Table::new() },
        }
    }

    /// Writes the section of sequences and returns where it ends.
    #[inline(always)]
    pub(crate) fn encode(&mut self, codes: &Codes, output: &mut Output, at: usize) -> usize {
        let count = codes.sequences().len();
        if count == 0 {
            put4(output, at, 0, 1);
            return at + 1;
        }
        let modes = if count < 128 {
            put4(output, at, count as u32, 1);
            at + 1
        } else {
            // The higher byte comes first.
            put4(output, at, (128 | (count as u32 >> 8)) | ((count as u32 & 255) << 8), 2);
            at + 2
        };
        let mut at = modes + 1;
        let total = count as u32;
        let tables = &mut self.tables;
        let literals = self.literals.choose(&codes.literals, total, &mut tables.literals, output, &mut at);
        let offsets = self.offsets.choose(&codes.offsets, total, &mut tables.offsets, output, &mut at);
        let lengths = self.lengths.choose(&codes.lengths, total, &mut tables.lengths, output, &mut at);
        put4(output, modes, literals << 6 | offsets << 4 | lengths << 2, 1);
        write(codes.sequences(), tables, output, at)
    }
}

impl Alphabet {
    fn new(predefined: &[i8], log: u32, max_log: u32) -> Self {
        let mut costs = [u16::MAX; SYMBOLS];
        for (cost, states) in costs.iter_mut().zip(predefined) {
            *cost = ((log << 8) as f32 - 256.0 * f32::from(states.unsigned_abs()).log2()) as u16;
        }
        Self { max_log, predefined: Table::of(predefined, log), predefined_costs: costs }
    }

    /// Chooses the cheapest way to code the counted symbols, describes it and makes its table.
    #[inline(always)]
    fn choose(
        &self,
        counts: &Counts,
        total: u32,
        table: &mut Table,
        output: &mut Output,
        at: &mut usize,
    ) -> u32 {
        let end = SYMBOLS - counts.iter().rev().take_while(|&&count| count == 0).count();
        let different = counts.iter().map(|&count| u16::from(count > 0)).sum::<u16>().into();
        let costs = counts.iter().zip(&self.predefined_costs);
        let predefined = costs.map(|(&count, &cost)| u32::from(count) * u32::from(cost)).sum::<u32>();
        if different == 1 && total > 2 {
            put4(output, *at, end as u32 - 1, 1);
            *at += 1;
            // No bits at all.
            table.clone_from(&ONE);
            return ONE_SYMBOL;
        }
        // Few sequences are not worth a description, nor the time for one.
        if total >= 16 {
            let log = fse::log_for(total, different, self.max_log);
            let shares = fse::share(counts, end, total, log);
            let described = shares.write(output, *at);
            if shares.cost(counts) + ((described - *at) << 11) as u32 <= predefined {
                *at = described;
                table.fill(&shares);
                return DESCRIBED;
            }
        }
        table.clone_from(&self.predefined);
        PREDEFINED
    }
}

/// Writes the sequences from the last to the first.
#[inline(always)]
fn write(packed: &[Packed], tables: &Tables, output: &mut Output, at: usize) -> usize {
    let mut bits = Bits::new(at);
    let Tables { literals, lengths, offsets } = tables;
    let Some((last, rest)) = packed.split_last() else { return at };
    let mut literals_state = literals.last(last.literals);
    let mut lengths_state = lengths.last(last.length);
    let mut offsets_state = offsets.last(last.offset);
    bits.add(last.extra, u32::from(last.width));
    bits.flush(output);
    for packed in rest.iter().rev() {
        offsets_state = offsets.encode(&mut bits, offsets_state, packed.offset);
        lengths_state = lengths.encode(&mut bits, lengths_state, packed.length);
        literals_state = literals.encode(&mut bits, literals_state, packed.literals);
        // At most 7 + 3 * 7 + 36 bits: two codes of ten extra bits need more than a page between them.
        bits.add(packed.extra, u32::from(packed.width));
        bits.flush(output);
    }
    lengths.end(&mut bits, lengths_state);
    offsets.end(&mut bits, offsets_state);
    literals.end(&mut bits, literals_state);
    bits.finish_backwards(output)
}

/// The distributions of RFC 8878, section 3.1.1.3.2.2.
const LITERALS_PREDEFINED: [i8; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1,
    -1, -1,
];
const LENGTHS_PREDEFINED: [i8; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];
const OFFSETS_PREDEFINED: [i8; 29] =
    [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1];
