//! The kernel's histogram files.

use pagehaul_latency::HistFile;

/// Runs the target.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(files) = HistFile::parse("event", &text) else { return };
    for file in files {
        assert!(file.entries.len() <= text.lines().count());
        for entry in &file.entries {
            let _ = entry.value("hitcount");
            if let Some((key, _)) = entry.keys.first() {
                let _ = entry.log2(key);
            }
        }
    }
}
