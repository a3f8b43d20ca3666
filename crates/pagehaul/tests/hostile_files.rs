//! Files that are made to harm their reader: each command ends, in bounded time and memory.

mod common {
    pub mod setup;
}

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};

use common::setup::{BINARY, Setup};
use pagehaul_kdump::{Header, Layout, UtsName};
use pagehaul_machine::PageSize;
use pagehaul_synth::{Era, Foreign, Machine, Message};

/// Runs the program with these arguments in `setup`'s directory. Fails the test if it takes more than 20 s of processor
/// time, or 512 MiB of address space.
fn run(setup: &Setup, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v 524288; ulimit -t 20; exec timeout -s KILL 300 \"$@\"", "sh", BINARY])
        .args(arguments);
    let output = command.current_dir(setup.directory.path()).stdin(Stdio::null()).output().unwrap();
    let (out, said) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert!(
        ![Some(134), Some(137), None, Some(101)].contains(&output.status.code()),
        "{arguments:?}: {:?} {said}",
        output.status
    );
    (output.status.code(), String::from_utf8_lossy(&out).into_owned(), said)
}

#[test]
fn a_pipe_is_refused_without_waiting_for_a_writer() {
    let setup = Setup::small();
    let pipe = setup.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    std::fs::create_dir(setup.path("mnt")).unwrap();
    for arguments in [
        &["info", "pipe"][..],
        &["verify", "pipe"],
        &["dmesg", "pipe"],
        &["pages", "pipe"],
        &["read", "--phys", "0", "pipe"],
        &["mount", "pipe", "mnt"],
        &["convert", "pipe", "out"],
        &["capture", "pipe", "out"],
        &["info", "pipe", "vmcore"],
        &["triage", "pipe"],
        &["facts", "pipe"],
        #[cfg(feature = "process")]
        &["restart", "pipe"],
    ] {
        let (code, _, said) = run(&setup, arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains("pipe: this is a pipe") && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    // Next to a dump, where its checksums are looked for and written.
    setup.succeeds(&["convert", "-q", "vmcore", "dump"]);
    std::fs::rename(pipe, setup.path("dump.sums")).unwrap();
    let (code, _, said) = run(&setup, &["verify", "dump"]);
    assert_eq!((code, said.contains("dump.sums: this is a pipe")), (Some(1), true), "{said}");
    let (code, _, said) = run(&setup, &["convert", "-q", "--force", "--checksums", "vmcore", "dump"]);
    assert_eq!((code, said.contains("dump.sums is a device or pipe")), (Some(1), true), "{said}");
}

/// A kdump-compressed dump that takes some KiB of disk and claims 2^39 page frames, of which it has none.
#[test]
fn a_sparse_bitmap_costs_what_the_file_holds() {
    let setup = Setup::small();
    let header = Header {
        uts: UtsName::default(),
        crash_time: 0,
        dump_level: 31,
        nr_cpus: 1,
        phys_base: 0,
        codec: 0,
        notes: &[],
        split: None,
    };
    let layout = Layout::new(PageSize::KIB_4, 1 << 39, 0).unwrap();
    let file = File::create(setup.path("sparse")).unwrap();
    file.write_all_at(&header.encode(&layout, false).unwrap(), 0).unwrap();
    // The last page frame exists, and some in the middle.
    file.write_all_at(&[0x80], layout.bitmap2_offset() - 1).unwrap();
    file.write_all_at(&[0x0f], layout.bitmap1_offset() + (1 << 34)).unwrap();
    file.set_len(layout.data_offset(0).unwrap()).unwrap();
    let (code, out, said) = run(&setup, &["info", "sparse"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("20.0 KiB"), "{out}");
    let (code, out, said) = run(&setup, &["verify", "sparse"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("5 (20.0 KiB) are excluded"), "{out}");
    for arguments in [&["dmesg", "sparse"][..], &["pages", "sparse"], &["info", "--classes", "sparse"]] {
        assert_eq!(run(&setup, arguments).0, Some(1), "{arguments:?}");
    }
}

/// A sparse vmcore of 1 TiB of zeros.
#[test]
fn zeros_that_no_file_holds_cost_nothing() {
    let setup = Setup::small();
    let machine = Foreign { machine: "x86_64", elf_machine: 62, ..Foreign::ALL[5] };
    let mut bytes = machine.elf(&[(0, vec![1; 4096])], &[]);
    let data = bytes.len() - 4096;
    // p_filesz and p_memsz of the last program header.
    for field in [32, 40] {
        bytes[data - 56 + field..][..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    }
    std::fs::write(setup.path("zeros"), bytes).unwrap();
    File::options().write(true).open(setup.path("zeros")).unwrap().set_len(data as u64 + (1 << 40)).unwrap();
    let (code, out, said) = run(&setup, &["verify", "zeros"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("268,435,456 (1.0 TiB) pages are readable"), "{out}");
    let (code, _, said) = run(&setup, &["convert", "-q", "-f", "elf", "zeros", "copy"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(std::fs::metadata(setup.path("copy")).unwrap().blocks() < 2048);
    let (_, out, _) = run(&setup, &["verify", "copy"]);
    assert!(out.contains("268,435,456 (1.0 TiB) pages are readable"), "{out}");
    // A copy that lost its end: the same number of pages is missing, or nearly.
    File::options().write(true).open(setup.path("zeros")).unwrap().set_len(1 << 30).unwrap();
    let (code, out, said) = run(&setup, &["verify", "zeros"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(out.contains("missing"), "{out}");
}

/// A vmcore of some KiB in which one page is every page table, and maps itself at every address.
fn looped_tables(setup: &Setup, name: &str, keys: &str) {
    let text = format!(
        "OSRELEASE=4.19.0\nPAGESIZE=4096\nSYMBOL(init_top_pgt)=ffffffff80001000\nNUMBER(phys_base)=0\n\
         NUMBER(KERNEL_IMAGE_SIZE)=1073741824\nSYMBOL(mem_section)=ffffffff80001000\n{keys}"
    );
    let machine = Foreign { machine: "x86_64", elf_machine: 62, ..Foreign::ALL[5] };
    let table: Vec<u8> = [0x1003u64.to_le_bytes(); 512].concat();
    let mut data = vec![0u8; 4096];
    let far = 0xffff_8880_0000_0000u64.to_le_bytes();
    let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
    // log_buf, log_buf_len, log_first_idx, log_next_idx.
    put(0, &far);
    put(8, &(1u32 << 31).to_le_bytes());
    put(20, &1u32.to_le_bytes());
    // prb, and the ring it points to: descs, infos, count_bits, head, tail; data, size_bits.
    put(0x100, &0xffff_ffff_8000_2108u64.to_le_bytes());
    put(0x108, &far);
    put(0x110, &far);
    put(0x118, &26u32.to_le_bytes());
    put(0x120, &((1u64 << 26) - 1).to_le_bytes());
    put(0x130, &far);
    put(0x138, &31u32.to_le_bytes());
    let notes = machine.vmcoreinfo(&text);
    std::fs::write(setup.path(name), machine.elf(&[(0x1000, table), (0x2000, data)], &notes)).unwrap();
}

#[test]
fn a_log_of_looped_page_tables_ends() {
    let setup = Setup::small();
    let records = "SYMBOL(log_buf)=ffffffff80002000\nSYMBOL(log_buf_len)=ffffffff80002008\n\
        SYMBOL(log_first_idx)=ffffffff80002010\nSYMBOL(log_next_idx)=ffffffff80002014\n\
        SIZE(printk_log)=SIZE\nOFFSET(printk_log.ts_nsec)=0\nOFFSET(printk_log.len)=1\n\
        OFFSET(printk_log.text_len)=4\nOFFSET(printk_log.dict_len)=4\n";
    let ring = "SYMBOL(prb)=ffffffff80002100\nOFFSET(printk_ringbuffer.desc_ring)=0\n\
        OFFSET(printk_ringbuffer.text_data_ring)=40\nOFFSET(prb_desc_ring.descs)=0\nOFFSET(prb_desc_ring.infos)=8\n\
        OFFSET(prb_desc_ring.count_bits)=16\nOFFSET(prb_desc_ring.head_id)=24\nOFFSET(prb_desc_ring.tail_id)=32\n\
        OFFSET(prb_data_ring.data)=0\nOFFSET(prb_data_ring.size_bits)=8\nSIZE(prb_desc)=24\n\
        OFFSET(prb_desc.state_var)=0\nOFFSET(prb_desc.text_blk_lpos)=8\nOFFSET(prb_data_blk_lpos.begin)=0\n\
        OFFSET(prb_data_blk_lpos.next)=8\nSIZE(printk_info)=88\nOFFSET(printk_info.seq)=0\n\
        OFFSET(printk_info.ts_nsec)=8\nOFFSET(printk_info.text_len)=16\nOFFSET(printk_info.caller_id)=20\n";
    for (name, keys) in [
        ("tiny", records.replace("SIZE)=SIZE", "SIZE)=8").replace("(printk_log)=SIZE", "(printk_log)=8")),
        ("usual", records.replace("(printk_log)=SIZE", "(printk_log)=16")),
        ("ring", ring.to_owned()),
    ] {
        looped_tables(&setup, name, &keys);
        let (_, out, said) = run(&setup, &["dmesg", name]);
        assert!(
            said.contains("records are inconsistent") || said.contains("SIZE(printk_log)"),
            "{name}: {said}"
        );
        assert!(out.len() < 1 << 20, "{name}: {} bytes", out.len());
        run(&setup, &["pages", name]);
        run(&setup, &["info", "--classes", name]);
    }
}

/// Text that would clear the screen and forge a line.
const HARM: &str = "x\u{1b}[2J\u{9b}2J\r\ncomplete      yes";

#[test]
fn json_with_text_of_strangers_is_json() {
    const PANIC: &str = "Kernel panic - not syncing: \u{9b}2J\u{7f}\u{202e}\u{1b}";
    let setup = Setup::small();
    let mut machine = Machine::new(Era::V6_12);
    machine.log(0x6000, &[Message { nanoseconds: 0, level: 0, caller: 7, text: PANIC }]);
    machine.build().elf().write(&setup.path("panic")).unwrap();
    for arguments in [&["dmesg", "--json", "panic"][..], &["facts", "panic"]] {
        let (_, out, said) = run(&setup, arguments);
        assert!(!out.contains(['\u{9b}', '\u{7f}', '\u{202e}', '\u{1b}']), "{out}");
        let value: serde_json::Value =
            serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out} {said}"));
        assert!(out.contains("\\u009b"), "{value}");
    }
}

#[test]
fn text_of_strangers_does_not_reach_the_terminal() {
    let setup = Setup::small();
    let uts =
        UtsName { nodename: HARM.into(), version: HARM.into(), release: HARM.into(), ..UtsName::default() };
    let mut notes = Vec::new();
    pagehaul_elfcore::notes::push(&mut notes, HARM, 7, b"description");
    pagehaul_elfcore::notes::push(&mut notes, "VMCOREINFO", 0, b"OSRELEASE=\x1b[2J\nBUILD-ID=\x1b[2J\n");
    let header = Header {
        uts,
        crash_time: 0,
        dump_level: 31,
        nr_cpus: 1,
        phys_base: 0,
        codec: 0,
        notes: &notes,
        split: None,
    };
    let layout = Layout::new(PageSize::KIB_4, 64, notes.len() as u64).unwrap();
    let mut bytes = header.encode(&layout, true).unwrap();
    bytes.resize(layout.data_offset(0).unwrap() as usize, 0);
    std::fs::write(setup.path("dump"), &bytes).unwrap();
    let odd = setup.path("a\u{1b}[2J\nzz");
    std::fs::write(&odd, &bytes).unwrap();
    let odd = odd.to_str().unwrap();
    for arguments in [
        &["info", "--notes", "dump"][..],
        &["info", "--notes", odd],
        &["verify", "dump"],
        &["verify", odd],
        &["dmesg", odd],
        &["pages", odd],
        &["read", "--phys", "0", odd],
        &["read", "--virt", "0", odd],
        &["info", odd, "vmcore"],
        &["convert", odd, odd],
        &["capture", odd, "out"],
        &["reclaim", "report", odd],
        &["info", "/nowhere\u{1b}[2J\n"],
    ] {
        let (_, out, said) = run(&setup, arguments);
        let all = out + &said;
        assert!(!all.chars().any(|c| c.is_control() && c != '\n'), "{arguments:?}: {all:?}");
        assert!(!all.contains("\ncomplete      yes"), "{arguments:?}: {all}");
        assert!(!all.contains("\nzz"), "{arguments:?}: {all}");
    }
}

#[test]
fn out_of_memory_is_one_sentence() {
    let setup = Setup::small();
    let machine = Foreign { machine: "x86_64", elf_machine: 62, ..Foreign::ALL[5] };
    let mut bytes = machine.elf(&[(0, vec![1; 4096])], &[]);
    // p_filesz of PT_NOTE: the notes reach into the hole at the end of the file.
    bytes[64 + 32..][..8].copy_from_slice(&(200u64 << 20).to_le_bytes());
    std::fs::write(setup.path("notes"), bytes).unwrap();
    File::options().write(true).open(setup.path("notes")).unwrap().set_len(300 << 20).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 131072; exec timeout -s KILL 60 \"$@\"", "sh", BINARY, "info", "notes"]);
    // With it, Rust's handler of failed allocations needs memory, and may wait for itself.
    command.env("RUST_BACKTRACE", "1").current_dir(setup.directory.path());
    let output = command.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "pagehaul: no memory is left: of the machine, or within a limit (ulimit -v)\n"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_mount_does_not_pass_for_another_machine() {
    let setup = Setup::small();
    std::fs::create_dir(setup.path("mnt")).unwrap();
    for machine in Foreign::ALL.into_iter().filter(|machine| machine.big_endian || !machine.wide) {
        std::fs::write(setup.path("dump"), machine.elf(&[(0, machine.page(1))], &[])).unwrap();
        let (code, _, said) = run(&setup, &["mount", "dump", "mnt"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("only little-endian 64-bit ones can be mounted"), "{said}");
    }
}
