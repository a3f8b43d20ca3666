//! Inputs to begin with: files of every format, small and intact.

use std::fs;
use std::path::Path;

use crate::targets::fleet_tables;
use crate::{Base, FIRST_PFN, MemoryFile, Simulation};
use pagehaul_output::checksums::Checksums;
use pagehaul_synth::{Codec, Content, Era, Image, Machine, Records, flatten, note};
use pagehaul_trace::MachineInfo;
use pagehaul_trace::pht::PhtWriter;

/// What takes an input: the target, a name, the bytes.
pub type Save<'a> = &'a dyn Fn(&str, &str, &[u8]) -> std::io::Result<()>;

/// Passes every input to `save`.
pub fn all(save: Save<'_>) -> std::io::Result<()> {
    let image = Machine::new(Era::V6_12)
        .fill(0x4001, Content::Text)
        .fill(0x4002, Content::Stamp)
        .fill(0x4003, Content::Random)
        .build();

    for (name, qemu) in [("proc", false), ("qemu", true)] {
        let elf = small_elf(&image, qemu);
        save("elf", name, &elf)?;
        save("mount_file", name, &elf)?;
        save("convert", name, &[&[0], &elf[..]].concat())?;
    }
    save("notes", "notes", image.notes())?;
    let text = image.vmcoreinfo().as_bytes();
    let range =
        [&0x4c69_4d45_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &0x1000_u64.to_le_bytes()].concat();
    let last = (0x1000 + text.len() as u64 - 1).to_le_bytes();
    save("image", "lime", &[&[11][..], &range, &last, &[0; 8], text].concat())?;
    save("image", "changed", &[11, 60, 0, b'1', b'2', b'3', b'4', b'5', b'6'])?;
    for version in [1, 3, 6] {
        let bytes = image.kdump().version(version).only(0x4000..0x4008).mixed().bytes();
        save("kdump", &format!("v{version}"), &bytes)?;
        save("mount_file", &format!("v{version}"), &bytes)?;
        save("convert", &format!("v{version}"), &[&[version as u8], &bytes[..]].concat())?;
    }
    let dump = image.kdump().only(0x4000..0x4004).codec(Codec::Zlib).bytes();
    save("kdump", "incomplete", &image.kdump().only(0x4000..0x4008).incomplete(3).bytes())?;
    save("kdump", "part", &image.kdump().only(0x4000..0x4008).parts(2)[1])?;
    save("split", "whole", &[0b11_10_01_00])?;
    save("split", "patched", &[0b11_10_01_00, 0, 16, 16, 0, 1, 1, 80, 16, 0, 2])?;
    save("rank", "runs", &[0, 0, 9, 0xff, 0xff, 200, 1, 0, 1, 1, 0, 1, 0xf0, 0xff, 64, 0, 0x80, 255])?;
    save("sums", "of-a-dump", Checksums::of(&MemoryFile::new(&dump))?.encode().as_bytes())?;
    let calls = [9, 2, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 3, 5, 0, 4, 0, 0, 4, 0, 0];
    save("frame_records", "calls", &calls)?;
    save("log", "ring", &[8, 0, 4, 1, 2, 3, 4, 5, 6, 7, 8])?;
    save("log", "records", &[0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8])?;
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
        let of_era = [&[index as u8], &bytes[..]].concat();
        save("classify", era.release(), &of_era)?;
        save("census", era.release(), &of_era)?;
        save("capture", era.release(), &[&[index as u8, 31, 5 * index as u8], &bytes[..]].concat())?;
    }
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/facts/tests/data"))? {
        let entry = entry?;
        save("crash_log", &entry.file_name().to_string_lossy(), &fs::read(entry.path())?)?;
    }
    // A page is missing, a pointer points elsewhere, a word is another; nothing is overwritten.
    for (name, patch) in [("missing", [0; 13]), ("pointer", [1; 13]), ("word", [4; 13])] {
        save("triage", name, &patch)?;
    }
    save("triage", "intact", &[])?;
    save("facts", "ring", &[8, 0, 0, 0, 4, 1, 2, 3, 4, 5, 6, 7, 8])?;
    for (index, era) in Era::ALL.into_iter().enumerate() {
        let info = Base::of(era).image.vmcoreinfo().as_bytes();
        save(
            "facts",
            era.release(),
            &[&[index as u8], &(info.len() as u16).to_le_bytes()[..], info].concat(),
        )?;
    }
    save("age", "key", crate::targets::age::KEY.as_bytes())?;
    if let Some(public) = crate::targets::age::KEY.split_whitespace().find(|word| word.starts_with("age1")) {
        save("age", "recipient", public.as_bytes())?;
        let recipients = pagehaul_encryption::Recipients::of_text(public, Path::new("age.txt"));
        let encrypted = recipients.map_err(std::io::Error::other)?;
        for (name, length) in [("little", 10), ("chunks", 70_000)] {
            let bytes =
                pagehaul_encryption::encrypt(&vec![7; length], &encrypted).map_err(std::io::Error::other)?;
            save("age", name, &bytes)?;
        }
    }
    set_ups(save)?;
    save("makedumpfile", "dump", b"-l\x00--message-level\x007\x00-d\x0031\x00/proc/vmcore\x00dump")?;
    save("makedumpfile", "split", b"--split\x00-d31\x00-c\x00vmcore\x00a\x00b")?;
    save("makedumpfile", "dmesg", b"--dump-dmesg\x00vmcore\x00log")?;
    fleets(save)?;
    answers(save)?;
    processes(save)?;
    traces(save)
}

/// Answers of servers: two bytes of status, headers, a body; and a URL and settings.
fn answers(save: Save<'_>) -> std::io::Result<()> {
    let result = "<CompleteMultipartUploadResult><ETag>\"a-1\"</ETag></CompleteMultipartUploadResult>";
    let parts = "<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag>\
                 <Size>5</Size></Part></ListPartsResult>";
    let error = "<Error><Code>NoSuchUpload</Code><Message>It is gone</Message></Error>";
    let range = "content-range: bytes 0-3/10\netag: \"a\"\ndate: Thu, 26 Nov 2026 12:00:00 GMT";
    for (name, status, headers, body) in [
        ("completed", 200_u16, "content-type: application/xml", result),
        ("parts", 200, "content-type: application/xml", parts),
        ("error", 404, "content-type: application/xml", error),
        ("range", 206, range, "1234"),
        ("redirect", 301, "location: https://b.example/y", ""),
        ("stored", 200, "etag: \"a\"\nx-amz-checksum-crc64nvme: AAAAAAAAAAA=", ""),
    ] {
        let bytes = [&status.to_le_bytes()[..], headers.as_bytes(), b"\n\n", body.as_bytes()].concat();
        save("remote_answer", name, &bytes)?;
    }
    save("remote_answer", "url", b"s3://bucket/directory/dump?x=1")?;
    save(
        "remote_answer",
        "settings",
        b"[default]\naws_access_key_id = A\naws_secret_access_key = B\nregion = r\n",
    )
}

/// Tables of a few crashes, and the files of a team.
fn fleets(save: Save<'_>) -> std::io::Result<()> {
    let dumps = "c1 1f896b3534f31037 aaaaaaaaaaaaaaaa f<g<h bug_in_f bug 6.12.1 web1 1793491200000000 1 1 31\n\
                 c2 1f896b3534f31037 aaaaaaaaaaaaaaaa f<g<h bug_in_f bug 6.1.90 web2 1793577600000000 1 1 31\n\
                 c3 2f896b3534f31037 aaaaaaaaaaaaaaaa f<g<i bug_in_f mce 6.12.2 web1 1793577600000000 1 0 0\n\
                 c4 - - - - requested 6.12.1 db-1 - 0 - -\n";
    let texts = [
        (0, dumps),
        (2, "c1 free 100\nc1 slab 50\nc2 free 9223372036854775807\nc2 slab 5\n"),
        (3, "c1 0 Normal free 10\nc1 0 Normal min 20\n"),
        (4, "c1 D\nc1 S\nc2 S\n"),
        (5, "d1 c1 /dumps/web1/dump 4 web1\nd2 - /dumps/web1/bad 0 -\n"),
    ];
    let bugs = "[[bug]]\nid = \"B-1\"\ntitle = \"f\"\nlink = \"https://example.com/1\"\n\
                signatures = [\"1f896b3534f31037\"]\nstate = \"fixed\"\nfixed-in = [\"6.1.80\", \"6.12.1\"]\n";
    let hours = "release,machine_hours,fleet,day\n6.12,1000,web,2026-11-01\n6.1,500.5,db,2026-11-02\n";
    let hosts = "host,fleet\nweb*,web\ndb-?,db\n";
    let piece =
        |number: u8, bytes: &[u8]| [&[number][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat();
    let files = [(6, bugs), (7, hours), (8, hosts)];
    let files: Vec<u8> = files.iter().flat_map(|(number, text)| piece(*number, text.as_bytes())).collect();
    let as_text = |(number, text): &(u8, &str)| piece(number | fleet_tables::AS_TEXT, text.as_bytes());
    let tables: Vec<u8> = texts.iter().flat_map(as_text).collect();
    save("fleet_tables", "text", &[&tables[..], &files].concat())?;
    for (number, text) in texts {
        let name = fleet_tables::FILES[usize::from(number)];
        let table = name.split('/').nth(1).unwrap_or_default();
        save("fleet_tables", table, &piece(number, &fleet_tables::parquet(table, text.as_bytes())))?;
    }
    let twice = [(0, dumps), (1, dumps)].iter().flat_map(as_text).collect::<Vec<u8>>();
    save("fleet_tables", "twice", &twice)?;
    save("fleet_tables", "files", &files)?;
    let facts = pagehaul_facts::Facts::read(&Simulation::new(Era::V6_12), "seed".to_owned());
    save("fleet_tables", "facts", &piece(9, &serde_json::to_vec(&facts)?))
}

/// Machines of three distributions, by their files.
fn set_ups(save: Save<'_>) -> std::io::Result<()> {
    let release = ("proc/sys/kernel/osrelease", "6.12.0-amd64\n");
    let line = ("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/vda1 crashkernel=256M\n");
    let grub = ("etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX='a \\\n b'\n");
    let fstab = ("etc/fstab", "/dev/vda1 / ext4 defaults 0 1\nUUID=1-2 /var xfs defaults 0 2\n");
    let debian = "USE_KDUMP=1\nKDUMP_COREDIR=\"/var/crash\"\nMAKEDUMP_ARGS=\"-c -d 31\"\n#SSH=\"u@h\"\n";
    let fedora =
        "path /var/crash\ncore_collector makedumpfile -l --message-level 7 -d 31\nssh u@h\nsshkey /root/k\n";
    let suse = "KDUMP_SAVEDIR=\"file:///var/crash\"\nKDUMP_DUMPFORMAT=\"lzo\"\nKDUMP_CPUS=\"\"\n";
    for (name, file, text) in [
        ("debian", "etc/default/kdump-tools", debian),
        ("fedora", "etc/kdump.conf", fedora),
        ("suse", "etc/sysconfig/kdump", suse),
    ] {
        let mut bytes = Vec::new();
        for (path, text) in [release, line, grub, fstab, (file, text)] {
            let number = crate::targets::kdump_setup::FILES.iter().position(|file| *file == path);
            bytes.push(number.unwrap_or_default() as u8);
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend(text.bytes());
        }
        save("kdump_setup", name, &bytes)?;
    }
    Ok(())
}

/// What is known of processes: files of this one in /proc, a process tree of CRIU's, an index of one image.
fn processes(save: Save<'_>) -> std::io::Result<()> {
    for name in ["smaps", "maps", "stat", "status"] {
        save("process_proc", name, &fs::read(format!("/proc/self/{name}"))?)?;
    }
    let tree = b"\x19CVT00'P\x08\0\0\0\x08\x64\x10\x01\x28\x64\x28\x65";
    save("process_proc", "tree", tree)?;
    save("restart", "tree", tree)?;
    save("process_proc", "name", b"\x0a\x0bpages-1.img")?;
    // Kind; {}; one image "p" of one block of 4 bytes at byte 24.
    let mut index = vec![1, 2, 0, 0, 0, b'{', b'}', 1, 0, 0, 0, 1, 0, 0, 0, b'p', 1, 0, 0, 0];
    index.extend(24u64.to_le_bytes());
    index.extend([4, 0, 0, 0, 4, 0, 0, 0]);
    index.extend([0; 8]);
    save("checkpoint", "index", &index)?;
    // A core of one PT_NOTE that tells of a process, and one page.
    let note = note("CORE", 3, &[b'x'; 136]);
    let mut core = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0\x01\0\0\0".to_vec();
    core.extend([0, 64, 0].into_iter().flat_map(u64::to_le_bytes));
    core.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    for (kind, at, size) in [(4u32, 176u64, note.len() as u64), (1, 4096, 4096)] {
        core.extend([kind.to_le_bytes(), 6u32.to_le_bytes()].concat());
        core.extend([at, 0x1000, 0, size, size, 4].into_iter().flat_map(u64::to_le_bytes));
    }
    core.extend(note);
    core.resize(8192, 7);
    save("process_core", "plain", &core)?;
    // The same in one raw frame, with its table.
    let mut frames = b"\x28\xb5\x2f\xfd\xa0".to_vec();
    frames.extend((core.len() as u32).to_le_bytes());
    frames.extend(&(1 | (core.len() as u32) << 3).to_le_bytes()[..3]);
    frames.extend(&core);
    let sizes = [frames.len() as u32, core.len() as u32];
    let table = [&[0x184d_2a5e, 17], &sizes[..], &[1]].concat();
    frames.extend(table.iter().flat_map(|word: &u32| word.to_le_bytes()));
    frames.extend([0, 0xb1, 0xea, 0x92, 0x8f]);
    save("process_core", "frames", &frames)
}

const FORMAT: &str = "name: mm_vmscan_direct_reclaim_begin\nID: 7\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
    \tfield:int order;\toffset:8;\tsize:4;\tsigned:1;\n\
    \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n\n\
    print fmt: \"order=%d %s\", REC->order, __print_flags(REC->order, \"|\", {(1UL << 3)|0x40u, \"BOTH\"}, {~( u32)1, \"X\"})\n";
const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:496;\tsigned:0;\n";

/// Traces of a few events.
fn traces(save: Save<'_>) -> std::io::Result<()> {
    save("trace_format", "format", FORMAT.as_bytes())?;
    save("trace_format", "header_page", HEADER_PAGE.as_bytes())?;
    // A record of 20 bytes, a long delta, an absolute time, padding.
    let mut data = Vec::new();
    data.extend((5_u32 | 9 << 5).to_le_bytes());
    data.extend([7, 0, 0, 0, 42, 0, 0, 0, 3, 0, 0, 0, 16, 0, 4, 0]);
    data.extend(*b"abc\0");
    for word in [30 | 5 << 5, 1, 31 | 6 << 5, 2, 29_u32] {
        data.extend(word.to_le_bytes());
    }
    let mut page = 1_000_u64.to_le_bytes().to_vec();
    page.extend((data.len() as u64).to_le_bytes());
    page.extend(data);
    page.resize(512, 0);
    save("trace_page", "little", &[&[0][..], &page].concat())?;

    let error = |error: pagehaul_trace::TraceError| std::io::Error::other(error.to_string());
    let path = Path::new("seed");
    let mut writer = PhtWriter::new(Vec::new(), path, 1).map_err(error)?;
    writer.machine(&MachineInfo { clock: Some("mono".into()), ..MachineInfo::default() }).map_err(error)?;
    writer.header_page(HEADER_PAGE).map_err(error)?;
    writer.format("vmscan", FORMAT).map_err(error)?;
    writer.pages(0, &page).map_err(error)?;
    let recording = writer.finish(&Default::default()).map_err(error)?;
    let size = (recording.len() as u16).to_le_bytes();
    save("trace_file", "pht", &recording)?;
    save("trace_file", "v6", &trace_dat(&page))?;
    save("reclaim_compare", "pht-v6", &[&size[..], &recording, &trace_dat(&page)].concat())?;
    let text = "# tracer: nop\n kswapd0-45 [001] d..1. 12.345678: mm_vmscan_kswapd_wake: nid=0 order=3\n\
        dd  12/13 [000] 12.4: vmscan:mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_KERNEL\nCPU:1 [LOST 22 EVENTS]\n\
        a b-7 [000] 12.5: mm_shrink_slab_start: scan+0x0/0x1 0000: nid: 0 objects to shrink 5 gfp_flags GFP_KERNEL cache items 1\n";
    save("trace_file", "text", text.as_bytes())?;
    save("reclaim_compare", "pht-text", &[&size[..], &recording, text.as_bytes()].concat())
}

/// The smallest trace.dat of version 6: one event, one CPU.
fn trace_dat(page: &[u8]) -> Vec<u8> {
    let mut file = b"\x17\x08\x44tracing6\0\0\x08\x00\x10\0\0".to_vec();
    let sized = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    file.extend(b"header_page\0");
    sized(&mut file, HEADER_PAGE);
    file.extend(b"header_event\0");
    sized(&mut file, "");
    file.extend(0_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend(b"vmscan\0");
    file.extend(1_u32.to_le_bytes());
    sized(&mut file, FORMAT);
    file.extend(0_u32.to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    sized(&mut file, "42 dd\n");
    file.extend(1_u32.to_le_bytes());
    file.extend(b"flyrecord\0");
    let offset = (file.len() as u64 + 16).next_multiple_of(512);
    file.extend(offset.to_le_bytes());
    file.extend((page.len() as u64).to_le_bytes());
    file.resize(offset as usize, 0);
    file.extend(page);
    file
}

/// A vmcore of a few pages: the notes and a fractional segment or two.
fn small_elf(image: &Image, qemu: bool) -> Vec<u8> {
    let mut elf = if qemu { image.qemu_elf() } else { image.elf() };
    elf.segments.clear();
    elf.overlap(0x400_0c00, 0x400_2800).overlap(0x400_2000, 0x400_3000).overlap(0x500_0000, 0x500_0010);
    elf.store_only(2, 0).bytes()
}
