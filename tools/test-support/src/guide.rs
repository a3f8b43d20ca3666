//! The guide's chapters, and the commands in them.

use std::path::{Path, PathBuf};

/// The commands of one fenced block.
pub struct Block {
    /// File name of the chapter, without `.md`.
    pub chapter: String,
    /// What follows `console` in the fence: what the commands need. Nothing; `process`, `mount`; `guest`, a virtual machine;
    /// `bucket`, an object store and pagehaul-fleet (upload.rs); `crash`, the dump of one that crashed; `fleet`, dumps of two and pagehaul-fleet; `duckdb`, tables, pagehaul-fleet and
    /// DuckDB (crates/python/tests/test_fleet.py); `distribution`, a machine whose packages
    /// they change, so no test runs them.
    pub needs: String,
    /// The commands, one per line, without their prompts.
    pub script: String,
}

/// Directory of the chapters.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src")
}

/// All `console` blocks of the guide, in order within each chapter.
pub fn blocks() -> Vec<Block> {
    let mut chapters: Vec<PathBuf> =
        std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    chapters.sort();
    let blocks: Vec<Block> = chapters.iter().flat_map(|path| blocks_of(path)).collect();
    assert!(blocks.len() > 20, "the guide has commands");
    blocks
}

/// The `console` blocks of a document, in order.
pub fn blocks_of(path: &Path) -> Vec<Block> {
    let chapter = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let mut blocks = Vec::new();
    let mut fence: Option<Option<Block>> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut fence) {
            (Some(_), Some(_)) => blocks.extend(fence.take().flatten()),
            (Some(info), None) => {
                fence = Some(info.strip_prefix("console").map(|needs| Block {
                    chapter: chapter.clone(),
                    needs: needs.trim().to_owned(),
                    script: String::new(),
                }));
            }
            (None, Some(Some(block))) => {
                let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
                if let Some(command) = command {
                    block.script += command;
                    block.script += "\n";
                }
            }
            (None, _) => {}
        }
    }
    blocks
}
