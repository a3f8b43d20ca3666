//! Writes the seed corpora: `cargo run --example seeds`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    pagehaul_fuzz_targets::seeds::all(&|target, name, bytes| {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(name), bytes)
    })
}
