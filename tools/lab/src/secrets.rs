//! Searches files for keys: their bytes, and what AES makes of them.

use anyhow::{Context, Result};
use memchr::memmem::Finder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes that are read at once.
const CHUNK: usize = 16 << 20;
/// The longest key schedule, of AES-256: 15 round keys.
const LONGEST: usize = 240;

/// What a file has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Indexes of the keys whose bytes are in the file.
    pub keys: BTreeSet<usize>,
    /// Places that have all bytes of a key, by its index.
    pub copies: BTreeMap<usize, u64>,
    /// Keys of AES whose schedules are in the file.
    pub schedules: BTreeSet<Vec<u8>>,
}

/// Searches a file for the first 16 bytes of each key, and for key schedules of AES-128 and AES-256.
pub fn search(path: &Path, keys: &[Vec<u8>]) -> Result<Hits> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut hits = Hits::default();
    let cipher = Cipher::new();
    let starts: Vec<Finder<'_>> = keys.iter().filter_map(|key| key.get(..16).map(Finder::new)).collect();
    let mut buffer = vec![0; LONGEST + CHUNK];
    // Bytes of the last chunk that what starts in it needs.
    let mut kept = 0;
    loop {
        let mut filled = kept;
        while filled < buffer.len() {
            let room = buffer.get_mut(filled..).unwrap_or_default();
            match file.read(room).with_context(|| path.display().to_string())? {
                0 => break,
                count => filled += count,
            }
        }
        let bytes = buffer.get(..filled).unwrap_or_default();
        let is_last = filled < buffer.len();
        // What is kept is searched with the next chunk.
        let end = if is_last { filled } else { filled - LONGEST };
        for at in (0..end).step_by(4) {
            let rest = bytes.get(at..).unwrap_or_default();
            // Most memory is zeros.
            if rest.first_chunk::<4>().is_none_or(|word| *word == [0; 4]) && rest.get(4..8) == Some(&[0; 4]) {
                continue;
            }
            hits.schedules.extend(cipher.key_of_schedule(rest).map(<[u8]>::to_vec));
        }
        // Keys can be at any place: in text, or behind headers of any length.
        for (index, (start, key)) in starts.iter().zip(keys).enumerate() {
            for at in start.find_iter(bytes).filter(|at| *at < end) {
                hits.keys.insert(index);
                *hits.copies.entry(index).or_default() += u64::from(bytes[at..].starts_with(key));
            }
        }
        if is_last {
            return Ok(hits);
        }
        kept = LONGEST;
        buffer.copy_within(filled - kept.., 0);
    }
}

/// What AES (FIPS 197) expands keys with.
struct Cipher {
    substitution: [u8; 256],
}

impl Cipher {
    fn new() -> Self {
        let mut substitution = [0x63; 256];
        // Powers of the generator 3, and of its inverse, 0xf6.
        let (mut power, mut inverse) = (1_u8, 1_u8);
        for _ in 0..255 {
            let rotations = (1..5).map(|by| inverse.rotate_left(by));
            substitution[usize::from(power)] = rotations.fold(inverse, |sum, one| sum ^ one) ^ 0x63;
            power ^= times_two(power);
            inverse = multiply(inverse, 0xf6);
        }
        Self { substitution }
    }

    /// Returns the key whose schedule starts here.
    fn key_of_schedule<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        [(4, 44), (8, 60)].into_iter().find_map(|(words, all)| {
            let word = |at: usize| bytes.get(4 * at..)?.first_chunk::<4>().copied();
            let mut round = 1;
            for at in words..all {
                let mut last = word(at - 1)?;
                if at % words == 0 {
                    last.rotate_left(1);
                    last = last.map(|byte| self.substitution[usize::from(byte)]);
                    last[0] ^= round;
                    round = times_two(round);
                } else if words == 8 && at % 8 == 4 {
                    last = last.map(|byte| self.substitution[usize::from(byte)]);
                }
                let (first, found) = (word(at - words)?, word(at)?);
                if found
                    .iter()
                    .zip(first.iter().zip(last))
                    .any(|(found, (first, last))| *found != first ^ last)
                {
                    return None;
                }
            }
            bytes.get(..4 * words)
        })
    }
}

fn times_two(value: u8) -> u8 {
    value << 1 ^ if value >> 7 == 1 { 0x1b } else { 0 }
}

fn multiply(one: u8, other: u8) -> u8 {
    let mut product = 0;
    let mut shifted = one;
    for bit in 0..8 {
        if other >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = times_two(shifted);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and last words of the examples of FIPS 197, appendix A.
    #[test]
    fn schedules_are_those_of_the_standard() {
        let cipher = Cipher::new();
        assert_eq!((cipher.substitution[0], cipher.substitution[0x53]), (0x63, 0xed));
        let key =
            [0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c];
        let mut schedule = key.to_vec();
        let mut round = 1;
        for at in 4..44 {
            let mut last: [u8; 4] = schedule[4 * at - 4..].try_into().unwrap();
            if at % 4 == 0 {
                last.rotate_left(1);
                last = last.map(|byte| cipher.substitution[usize::from(byte)]);
                last[0] ^= round;
                round = times_two(round);
            }
            let word: Vec<u8> = (0..4).map(|byte| schedule[4 * (at - 4) + byte] ^ last[byte]).collect();
            schedule.extend(word);
        }
        assert_eq!(schedule[160..164], [0xd0, 0x14, 0xf9, 0xa8]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        // Across the end of a chunk.
        let mut file = vec![7; CHUNK + LONGEST - 100];
        file.extend(&schedule);
        std::fs::write(&path, &file).unwrap();
        let hits = search(&path, &[key.to_vec(), vec![1; 16]]).unwrap();
        assert_eq!(hits.schedules, BTreeSet::from([key.to_vec()]));
        assert_eq!((hits.keys, hits.copies), (BTreeSet::from([0]), BTreeMap::from([(0, 1)])));
        file[CHUNK + LONGEST + 20] ^= 1;
        std::fs::write(&path, &file).unwrap();
        assert_eq!(search(&path, &[]).unwrap(), Hits::default());
    }
}
