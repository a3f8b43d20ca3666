//! The targets: each feeds bytes to one thing that reads what it did not write.

pub mod age;
pub mod btf;
pub mod capture;
pub mod census;
pub mod checkpoint;
pub mod classify;
pub mod codecs;
pub mod convert;
pub mod crash_log;
pub mod elf;
pub mod facts;
pub mod flattened;
pub mod fleet_tables;
pub mod frame_records;
pub mod hist;
pub mod image;
pub mod kallsyms;
pub mod kdump;
pub mod kdump_setup;
pub mod log;
pub mod makedumpfile;
pub mod module;
pub mod mount_file;
pub mod notes;
pub mod orc;
pub mod page_tables;
pub mod process_core;
pub mod process_proc;
pub mod rank;
pub mod reclaim_compare;
pub mod remote_answer;
pub mod restart;
pub mod split;
pub mod sums;
pub mod trace_file;
pub mod trace_format;
pub mod trace_page;
pub mod triage;
pub mod vmallocinfo;
pub mod vmcoreinfo;

/// A target's name, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const ALL: &[Target] = &[
    ("age", age::run),
    ("btf", btf::run),
    ("capture", capture::run),
    ("census", census::run),
    ("checkpoint", checkpoint::run),
    ("classify", classify::run),
    ("codecs", codecs::run),
    ("convert", convert::run),
    ("crash_log", crash_log::run),
    ("elf", elf::run),
    ("facts", facts::run),
    ("flattened", flattened::run),
    ("fleet_tables", fleet_tables::run),
    ("frame_records", frame_records::run),
    ("hist", hist::run),
    ("image", image::run),
    ("kallsyms", kallsyms::run),
    ("kdump", kdump::run),
    ("kdump_setup", kdump_setup::run),
    ("log", log::run),
    ("makedumpfile", makedumpfile::run),
    ("module", module::run),
    ("mount_file", mount_file::run),
    ("notes", notes::run),
    ("orc", orc::run),
    ("page_tables", page_tables::run),
    ("process_core", process_core::run),
    ("process_proc", process_proc::run),
    ("rank", rank::run),
    ("reclaim_compare", reclaim_compare::run),
    ("remote_answer", remote_answer::run),
    ("restart", restart::run),
    ("split", split::run),
    ("sums", sums::run),
    ("trace_file", trace_file::run),
    ("trace_format", trace_format::run),
    ("trace_page", trace_page::run),
    ("triage", triage::run),
    ("vmallocinfo", vmallocinfo::run),
    ("vmcoreinfo", vmcoreinfo::run),
];
