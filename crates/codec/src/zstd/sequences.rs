//! The sequences section of a block (RFC 8878, 3.1.1.3.2): the header, FSE tables, and one bitstream of all
//! codes and their extra bits.

use super::codes::{CodedSequence, CodedSequences};
use super::fse::{self, Counts, EncodingTable, MAX_SYMBOLS};
use crate::common::bit_writer::{BitWriter, Output, put4};

/// Largest table logs of tables built from a page's counts. The format allows 9 for lengths and 8 for
/// offsets, which do not make pages smaller.
const MAX_LENGTH_TABLE_LOG: u32 = 6;
const MAX_OFFSET_TABLE_LOG: u32 = 5;

/// Symbol compression modes.
const PREDEFINED_MODE: u32 = 0;
const RLE_MODE: u32 = 1;
const FSE_COMPRESSED_MODE: u32 = 2;

pub(super) struct SequencesEncoder {
    literals_lengths: Alphabet,
    match_lengths: Alphabet,
    offsets: Alphabet,
    tables: Tables,
}

/// The tables of one block, in one place: with a register for each the inner loop runs out of registers.
struct Tables {
    literals_lengths: EncodingTable,
    match_lengths: EncodingTable,
    offsets: EncodingTable,
}

/// Literals length, match length or offset codes.
struct Alphabet {
    max_table_log: u32,
    predefined: EncodingTable,
    /// Bits of each code with the predefined table, in 256ths.
    predefined_costs: [u16; MAX_SYMBOLS],
}

/// The table of an alphabet with one symbol, which takes no bits.
static RLE_TABLE: EncodingTable = EncodingTable::new();

impl SequencesEncoder {
    pub(super) fn new() -> Self {
        Self {
            literals_lengths: Alphabet::new(&LITERALS_LENGTH_DEFAULT, 6, MAX_LENGTH_TABLE_LOG),
            match_lengths: Alphabet::new(&MATCH_LENGTH_DEFAULT, 6, MAX_LENGTH_TABLE_LOG),
            offsets: Alphabet::new(&OFFSET_DEFAULT, 5, MAX_OFFSET_TABLE_LOG),
            tables: Tables {
                literals_lengths: EncodingTable::new(),
                match_lengths: EncodingTable::new(),
                offsets: EncodingTable::new(),
            },
        }
    }

    /// Writes the sequences section, the header as in RFC 8878, 3.1.1.3.2.1. Returns where it ends.
    #[inline(always)]
    pub(super) fn write(&mut self, coded: &CodedSequences, output: &mut Output, at: usize) -> usize {
        let count = coded.sequences().len();
        if count == 0 {
            put4(output, at, 0, 1);
            return at + 1;
        }
        let modes = if count < 128 {
            put4(output, at, count as u32, 1);
            at + 1
        } else {
            // The more significant byte comes first.
            put4(output, at, (128 | (count as u32 >> 8)) | ((count as u32 & 255) << 8), 2);
            at + 2
        };
        let mut at = modes + 1;
        let total = count as u32;
        let tables = &mut self.tables;
        let literals_lengths = self.literals_lengths.write_table(
            &coded.literals_lengths,
            total,
            &mut tables.literals_lengths,
            output,
            &mut at,
        );
        let offsets = self.offsets.write_table(&coded.offsets, total, &mut tables.offsets, output, &mut at);
        let match_lengths = self.match_lengths.write_table(
            &coded.match_lengths,
            total,
            &mut tables.match_lengths,
            output,
            &mut at,
        );
        put4(output, modes, literals_lengths << 6 | offsets << 4 | match_lengths << 2, 1);
        write_bitstream(coded.sequences(), tables, output, at)
    }
}

impl Alphabet {
    fn new(predefined: &[i8], table_log: u32, max_table_log: u32) -> Self {
        let mut costs = [u16::MAX; MAX_SYMBOLS];
        for (cost, states) in costs.iter_mut().zip(predefined) {
            *cost = ((table_log << 8) as f32 - 256.0 * f32::from(states.unsigned_abs()).log2()) as u16;
        }
        Self {
            max_table_log,
            predefined: EncodingTable::from_distribution(predefined, table_log),
            predefined_costs: costs,
        }
    }

    /// Chooses the cheapest mode for codes with these counts, writes its table description and builds
    /// `table`. Returns the mode.
    #[inline(always)]
    fn write_table(
        &self,
        counts: &Counts,
        total: u32,
        table: &mut EncodingTable,
        output: &mut Output,
        at: &mut usize,
    ) -> u32 {
        let symbol_end = MAX_SYMBOLS - counts.iter().rev().take_while(|&&count| count == 0).count();
        let distinct = counts.iter().map(|&count| u16::from(count > 0)).sum::<u16>().into();
        let costs = counts.iter().zip(&self.predefined_costs);
        let predefined = costs.map(|(&count, &cost)| u32::from(count) * u32::from(cost)).sum::<u32>();
        if distinct == 1 && total > 2 {
            put4(output, *at, symbol_end as u32 - 1, 1);
            *at += 1;
            table.clone_from(&RLE_TABLE);
            return RLE_MODE;
        }
        // Few sequences are worth neither a table description nor the time to build one.
        if total >= 16 {
            let table_log = fse::optimal_table_log(total, distinct, self.max_table_log);
            let normalized = fse::normalize(counts, symbol_end, total, table_log);
            let end = normalized.write(output, *at);
            if normalized.bit_cost(counts) + ((end - *at) << 11) as u32 <= predefined {
                *at = end;
                table.build(&normalized);
                return FSE_COMPRESSED_MODE;
            }
        }
        table.clone_from(&self.predefined);
        PREDEFINED_MODE
    }
}

/// Writes the bitstream of the sequences (RFC 8878, 3.1.1.3.2.1.2), from the last to the first. Returns where
/// it ends.
#[inline(always)]
fn write_bitstream(sequences: &[CodedSequence], tables: &Tables, output: &mut Output, at: usize) -> usize {
    let mut bits = BitWriter::new(at);
    let Tables { literals_lengths, match_lengths, offsets } = tables;
    let Some((last, rest)) = sequences.split_last() else { return at };
    let mut literals_length_state = literals_lengths.init_state(last.literals_length);
    let mut match_length_state = match_lengths.init_state(last.match_length);
    let mut offset_state = offsets.init_state(last.offset);
    bits.add(last.extra, u32::from(last.extra_width));
    bits.flush(output);
    for sequence in rest.iter().rev() {
        offset_state = offsets.encode(&mut bits, offset_state, sequence.offset);
        match_length_state = match_lengths.encode(&mut bits, match_length_state, sequence.match_length);
        literals_length_state =
            literals_lengths.encode(&mut bits, literals_length_state, sequence.literals_length);
        // At most 7 + 3 * 7 + 36 bits: two codes with ten extra bits each would make more than a page.
        bits.add(sequence.extra, u32::from(sequence.extra_width));
        bits.flush(output);
    }
    match_lengths.write_state(&mut bits, match_length_state);
    offsets.write_state(&mut bits, offset_state);
    literals_lengths.write_state(&mut bits, literals_length_state);
    bits.finish_backward(output)
}

/// Default distributions (RFC 8878, 3.1.1.3.2.2).
const LITERALS_LENGTH_DEFAULT: [i8; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1,
    -1, -1,
];
const MATCH_LENGTH_DEFAULT: [i8; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];
const OFFSET_DEFAULT: [i8; 29] =
    [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1];
