//! Memory without notes, of any era and architecture, with texts that may be VMCOREINFO: what is taken for it was there. The same bytes as
//! an image by LiME, and as a raw one: opening them ends.

use crate::{Simulation, in_file};
use pagehaul_images::{find, open};
use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::Layout;

/// Bytes of memory that the text is put at.
const ROOM: usize = 64 << 10;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let simulation = Simulation::of_any_architecture(choice);
    let own = simulation.image().vmcoreinfo().as_bytes().to_vec();
    // Changes of the kernel's own text: a place, a length, bytes.
    let mut text = own.clone();
    for change in rest.as_chunks::<8>().0.iter().take(64) {
        let [low, high, bytes @ ..] = change;
        let at = usize::from(u16::from_le_bytes([*low, *high])) % text.len();
        for (place, byte) in text.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    }
    let free = simulation.image().kernel_pfns().end * simulation.image().page_size() as u64;
    let other = rest.get(..rest.len().min(ROOM)).unwrap_or_default();
    let simulation = simulation.with_bytes(free, &text).with_bytes(free + (ROOM as u64), other);
    if let Ok(kernels) = find(&simulation, 1) {
        for kernel in kernels {
            let is_from = |place: &[u8]| place.windows(kernel.text.len()).any(|text| text == kernel.text);
            assert!(is_from(&text) || is_from(other), "{:#x}", kernel.at);
        }
    }
    let layouts = ["flat", "q35", "1000-1fff@10,0-fff@800", "fffffffff000-"];
    let layout =
        layouts.get(usize::from(choice) % layouts.len()).and_then(|text| text.parse::<Layout>().ok());
    in_file(rest, |path| {
        let _ = open(path, None, MapPolicy::default());
        let _ = open(path, layout.as_ref(), MapPolicy::default());
    });
}
