//! Writes the seed corpora: `cargo run --example seeds`.

use std::fs;
use std::path::Path;

use pagehaul_fuzz::{Base, FIRST_PFN};
use pagehaul_synth::{Codec, Content, Era, Image, Machine, Records, flatten};

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let save = |target: &str, name: &str, bytes: &[u8]| {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(name), bytes)
    };
    let image = Machine::new(Era::V6_12)
        .fill(0x4001, Content::Text)
        .fill(0x4002, Content::Stamp)
        .fill(0x4003, Content::Random)
        .build();

    save("elf", "proc", &small_elf(&image, false))?;
    save("elf", "qemu", &small_elf(&image, true))?;
    save("notes", "notes", image.notes())?;
    for version in [1, 3, 6] {
        let bytes = image.kdump().version(version).only(0x4000..0x4008).mixed().bytes();
        save("kdump", &format!("v{version}"), &bytes)?;
    }
    let dump = image.kdump().only(0x4000..0x4004).codec(Codec::Zlib).bytes();
    save("kdump", "incomplete", &image.kdump().only(0x4000..0x4008).incomplete(3).bytes())?;
    save("kdump", "part", &image.kdump().only(0x4000..0x4008).parts(2)[1])?;
    save("flattened", "ascending", &flatten(&dump, 4096, Records::Ascending))?;
    save("flattened", "shuffled", &flatten(&dump, 1000, Records::Shuffled))?;
    save("flattened", "rewritten", &flatten(&dump, 4096, Records::Rewritten))?;

    for (index, content) in [Content::Zero, Content::Text, Content::Stamp, Content::Random].iter().enumerate()
    {
        let page = content.page(7);
        save("codecs", &format!("page-{index}"), &page)?;
        for codec in Codec::ALL {
            if let Some(bytes) = codec.compress(&page) {
                save("codecs", &format!("{codec:?}-{index}").to_lowercase(), &bytes)?;
            }
        }
    }
    for (index, era) in Era::ALL.into_iter().enumerate() {
        let base = Base::of(era);
        let mut info = vec![index as u8];
        info.extend(base.image.vmcoreinfo().as_bytes());
        save("vmcoreinfo", era.release(), &info)?;
        // The struct pages of one block of every kind.
        let mut bytes = vec![0; 64 * 360];
        base.image.read(base.image.struct_page_paddr(FIRST_PFN), &mut bytes);
        bytes.insert(0, index as u8);
        save("classify", era.release(), &bytes)?;
    }
    Ok(())
}

/// A vmcore of a few pages: the notes and a fractional segment or two.
fn small_elf(image: &Image, qemu: bool) -> Vec<u8> {
    let mut elf = if qemu { image.qemu_elf() } else { image.elf() };
    elf.segments.clear();
    elf.overlap(0x400_0c00, 0x400_2800).overlap(0x400_2000, 0x400_3000).overlap(0x500_0000, 0x500_0010);
    elf.store_only(2, 0).bytes()
}
