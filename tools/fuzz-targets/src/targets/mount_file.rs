//! Any file as a source: the vmcore that a mount shows of it, and `verify`.

use crate::in_file;
use pagehaul_mount::{Absent, CoreFile};
use pagehaul_physmem::MapPolicy;
use pagehaul_run::Progress;
use pagehaul_vmcore::{Source, verify::verify};

/// Runs the target.
pub fn run(data: &[u8]) {
    in_file(data, |path| {
        let Ok(source) = Source::open(path, MapPolicy::default()) else { return };
        let core = CoreFile::new(source.memory(), None, Absent::Zeros);
        assert!(core.stored_bytes().is_ok_and(|bytes| bytes <= core.size()));
        let mut view = core.view();
        let mut buffer = vec![0; 64 << 10];
        // The start, the end, and odd places between.
        for part in 0..16 {
            let offset = core.size() / 16 * part + part * 777;
            let wanted = core.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
            if let Ok(count) = core.read(view.as_mut(), offset, &mut buffer) {
                assert_eq!(count, wanted);
            }
        }
        let mut at = 0;
        for wanted in [true, false].into_iter().cycle().take(64) {
            let Ok(Some(next)) = core.seek(at, wanted) else { break };
            assert!((at..=core.size()).contains(&next));
            at = next;
        }
        let _ = verify(&source, 1, &Progress::default());
    });
}
