//! Checkpoints: any bytes, or any index with a valid checksum.

use crate::in_file;
use pagehaul_process::{describe_checkpoint, fuzzing, verify_checkpoint};
use pagehaul_run::Progress;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    let bytes = if kind & 1 == 0 { data.to_vec() } else { fuzzing::with_index(data) };
    in_file(&bytes, |path| {
        let described = describe_checkpoint(path);
        let found = verify_checkpoint(path, 1, &Progress::default());
        if let (Ok(Some(info)), Ok(found)) = (described, found) {
            let found = found.expect("what can be described can be verified");
            assert_eq!(info.image_bytes, found.bytes);
        }
    });
}
