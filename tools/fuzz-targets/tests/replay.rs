//! Every target takes its seeds, what was kept of fuzzing (`corpus`), and changed versions of both.
//!
//! `PAGEHAUL_ROUNDS` is how many changed versions of each input there are: 4 unless it says more.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use pagehaul_fuzz_targets::{seeds, targets};

/// Largest input that is changed: targets read all of it each time.
const MOST: usize = 64 << 10;

type Input = (String, String, Vec<u8>);

fn inputs() -> Vec<Input> {
    let inputs = Mutex::new(Vec::new());
    seeds::all(&|target, name, bytes| {
        inputs.lock().unwrap().push((target.to_owned(), name.to_owned(), bytes.to_vec()));
        Ok(())
    })
    .unwrap();
    let mut inputs = inputs.into_inner().unwrap();
    for directory in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")).into_iter().flatten()
    {
        let directory = directory.unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            let [target, name] = [&directory, &file].map(|entry| entry.file_name().into_string().unwrap());
            inputs.push((target, name, fs::read(file.path()).unwrap()));
        }
    }
    inputs
}

/// Changes a few bytes: others, words that stand elsewhere in it, an end.
fn changed(bytes: &[u8], mut state: u64) -> Vec<u8> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + next() % 6 {
        let length = bytes.len();
        if length == 0 {
            return bytes;
        }
        let at = next() % length;
        match next() % 5 {
            0 => bytes[at] = next() as u8,
            1 => bytes[at] ^= 1 << (next() % 8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next() % 5],
            3 => {
                let (from, count) = (next() % length, 1 + next() % 8);
                for index in 0..count.min(length - at.max(from)) {
                    bytes[at + index] = bytes[from + index];
                }
            }
            _ if next() % 4 == 0 => bytes.truncate(at),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
    bytes
}

#[test]
fn targets_take_their_inputs_and_changed_ones() {
    let rounds: u64 = std::env::var("PAGEHAUL_ROUNDS").map_or(4, |text| text.parse().unwrap());
    let inputs = inputs();
    for (name, run) in targets::ALL {
        let of_target: Vec<_> = inputs.iter().filter(|(target, ..)| target == name).collect();
        assert!(
            !of_target.is_empty()
                || ["btf", "hist", "kallsyms", "module", "orc", "page_tables", "vmallocinfo"].contains(name),
            "{name} has no seed"
        );
        run(&[]);
        for (index, (_, _, bytes)) in of_target.iter().enumerate() {
            run(bytes);
            for round in 0..rounds {
                run(&changed(&bytes[..bytes.len().min(MOST)], 1 + round * 1000 + index as u64));
            }
        }
    }
    for (target, name, _) in &inputs {
        assert!(targets::ALL.iter().any(|(known, _)| known == target), "{target}/{name}");
    }
}
