//! Synthetic pages of a given dirtiness: the share of incompressible bytes.

use fastrand::Rng;
use pagehaul_physmem::{PAGE_SIZE, PageBuf};

/// Bytes of a line, the unit of dirtiness.
const LINE: usize = 64;

/// Returns a page of which `dirtiness` percent are noise; the rest is, in turn, pointers and counters, text, or small numbers.
pub fn page(dirtiness: u8, noise: &mut Rng) -> PageBuf {
    let mut page = [0; PAGE_SIZE];
    match noise.u64(..3) {
        0 => objects(&mut page, noise),
        1 => text(&mut page, noise),
        _ => numbers(&mut page, noise),
    }
    let lines = PAGE_SIZE / LINE;
    let dirty = lines * usize::from(dirtiness.min(100)) / 100;
    // Every line is dirty with the same probability, and exactly `dirty` of them are.
    let mut left = dirty;
    for (index, line) in page.chunks_exact_mut(LINE).enumerate() {
        if noise.u64(..(lines - index) as u64) < left as u64 {
            left -= 1;
            for word in line.as_chunks_mut::<8>().0 {
                *word = noise.u64(..).to_le_bytes();
            }
        }
    }
    page
}

/// Objects of 64 bytes: a list's pointers, a reference count, flags.
fn objects(page: &mut PageBuf, noise: &mut Rng) {
    let heap = 0xffff_8881_0000_0000 | noise.u64(..1 << 20) << 12;
    for object in page.as_chunks_mut::<LINE>().0 {
        let fields = [
            heap + noise.u64(..64) * 64,
            heap + noise.u64(..64) * 64,
            noise.u64(..4),
            0,
            heap,
            0,
            0x2f,
            noise.u64(..16),
        ];
        for (place, field) in object.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
    }
}

fn text(page: &mut PageBuf, noise: &mut Rng) {
    const WORDS: [&str; 16] = [
        "memory ",
        "page ",
        "of ",
        "the ",
        "kernel ",
        "error: ",
        "0x",
        "return ",
        "struct ",
        "int ",
        "if (",
        ");\n",
        "/usr/lib/",
        "information ",
        "and ",
        "section ",
    ];
    let mut at = 0;
    while let Some(rest) = page.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let word = WORDS[noise.u64(..WORDS.len() as u64) as usize].as_bytes();
        let len = word.len().min(rest.len());
        rest[..len].copy_from_slice(&word[..len]);
        at += len;
    }
}

fn numbers(page: &mut PageBuf, noise: &mut Rng) {
    for place in page.as_chunks_mut::<4>().0 {
        *place = (noise.u64(..4) as u32 * 3).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_noise_is_what_was_asked_for() {
        for dirtiness in [0, 25, 50, 100] {
            let (mut one, mut other) = (Rng::with_seed(7), Rng::with_seed(7));
            let clean = page(0, &mut one);
            let dirty = page(dirtiness, &mut other);
            let differ = clean.chunks(LINE).zip(dirty.chunks(LINE)).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 64 * usize::from(dirtiness) / 100);
        }
        assert_eq!(page(40, &mut Rng::with_seed(1)), page(40, &mut Rng::with_seed(1)));
    }
}
