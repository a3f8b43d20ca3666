//! The flattened format: a dump as a stream of records, each with the offset of its bytes.

use crate::content::Noise;

/// Order of the records of a flattened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// By offset.
    Ascending,
    Shuffled,
    /// By offset, but the first 4 KiB are rewritten at the end, as by writers that know counts only then.
    Rewritten,
}

/// Returns `file` flattened into records of `size` bytes each.
pub fn flatten(file: &[u8], size: usize, records: Records) -> Vec<u8> {
    let mut out = vec![0; 4096];
    out[..12].copy_from_slice(b"makedumpfile");
    out[16..24].copy_from_slice(&1_i64.to_be_bytes());
    out[24..32].copy_from_slice(&1_i64.to_be_bytes());
    let mut pieces: Vec<(u64, Vec<u8>)> =
        file.chunks(size).enumerate().map(|(index, piece)| ((index * size) as u64, piece.to_vec())).collect();
    match records {
        Records::Ascending => {}
        Records::Shuffled => {
            let mut noise = Noise::new(file.len() as u64);
            for index in (1..pieces.len()).rev() {
                pieces.swap(index, (noise.next() % (index as u64 + 1)) as usize);
            }
        }
        Records::Rewritten => {
            let head = file.len().min(4096);
            pieces.insert(0, (0, vec![0xee; head]));
            pieces.push((0, file[..head].to_vec()));
        }
    }
    for (offset, bytes) in pieces {
        out.extend((offset as i64).to_be_bytes());
        out.extend((bytes.len() as i64).to_be_bytes());
        out.extend(bytes);
    }
    out.extend((-1_i64).to_be_bytes());
    out.extend((-1_i64).to_be_bytes());
    out
}
