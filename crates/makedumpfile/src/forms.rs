//! Every form in which kdump scripts, administrators and test suites call makedumpfile, with what it means.

use std::ffi::OsString;

use crate::options::Options;
use crate::task::{Invalid, Task};

/// Who calls makedumpfile so, how, and what it means. Paths: C is the vmcore, D, E, F are files.
const FORMS: &str = "
Debian      | -F -c -d 31 C                                        | dump C: flattened zlib 31
Debian      | -c -d 31 -F C                                        | dump C: flattened zlib 31
Debian      | --dump-dmesg C F                                     | dmesg C to F
Fedora      | -l --message-level 7 -d 31 C F                       | dump C to F: kdump lzo 31
Fedora      | -l --message-level 7 -d 31 --num-threads=4 C F       | dump C to F: kdump lzo 31, threads 4
Fedora ssh  | -l --message-level 7 -d 31 -F C                      | dump C: flattened lzo 31
Fedora s390 | -c --message-level 7 -d 31 C F                       | dump C to F: kdump zlib 31
Fedora      | -E -d 31 C F                                         | dump C to F: elf 31
Fedora raw  | -R F                                                 | rearrange to F
mkdumprd    | --check-params -l --message-level 7 -d 31 C F        | check
mkdumprd    | --check-params -l --message-level 1 -d 31 -F C       | check
mkdumprd    | --check-params -l --message-level 0 -d 0 C F         | check
mkdumprd    | --check-params -l --message-level 31 -d 1 C F        | check
mkdumprd    | --check-params -l --message-level 32 -d 31 C F       | Message_level(32) is invalid.
mkdumprd    | --check-params -l --message-level -1 -d 31 C F       | Message_level(-1) is invalid.
mkdumprd    | --check-params -l -d 32 C F                          | Dump_level(32) is invalid.
mkdumprd    | --check-params -l -d -1 C F                          | Dump_level(-1) is invalid.
mkdumprd    | --check-params -F -l -d 31 C F                       | invalid
openSUSE    | -F --message-level 8 --dump-dmesg C                  | dmesg C, messages 8
openSUSE    | -F -l --num-threads 32 --message-level 6 -d 31 C     | dump C: flattened lzo 31, threads 32, messages 6
openSUSE    | -F -c --message-level 15 -d 31 C                     | dump C: flattened zlib 31, messages 15
openSUSE    | -F -p --message-level 6 -d 31 C                      | dump C: flattened snappy 31, messages 6
openSUSE    | -F -z --message-level 6 -d 31 C                      | dump C: flattened zstd 31, messages 6
openSUSE    | -F -E --message-level 6 -d 31 C                      | dump C: flattened elf 31, messages 6
openSUSE    | -F -l --message-level 6 -d 31 -X C                   | -X is refused
calibrate   | -F -l /proc/kcore                                    | dump /proc/kcore: flattened lzo 0
SteamOS     | -z -d 31 C F                                         | dump C to F: kdump zstd 31
OpenEmb.    | -E -d 1 C F                                          | dump C to F: elf 1
OpenEmb.    | -d 31 -c C F                                         | dump C to F: kdump zlib 31
vpsAdminOS  | -c -d 16 --num-threads 8 C F                         | dump C to F: kdump zlib 16, threads 8
vpsAdminOS  | --split -c -d 16 C D E F                             | dump C to D E F: kdump zlib 16
eve         | -d 31 C F                                            | dump C to F: kdump none 31
SONiC       | --mem-usage /proc/kcore                              | mem-usage /proc/kcore
admins      | -l --message-level 1 -d 31 C F                       | dump C to F: kdump lzo 31, messages 1
admins      | -c --message-level 1 -d 31 C F                       | dump C to F: kdump zlib 31, messages 1
admins      | -d 17 -c C F                                         | dump C to F: kdump zlib 17
admins      | -E -f --message-level 1 -d 31 C F                    | dump C to F: elf 31, messages 1, overwrite
admins      | -F -d 31 C                                           | dump C: flattened none 31
Ubuntu      | -c -d 11,31 C F                                      | dump C to F: kdump zlib 11,31
retrace     | -d 31 -x vmlinux C F                                 | dump C to F: kdump none 31
tests       | -i vmcoreinfo C F                                    | dump C to F: kdump none 0
tests       | --split -d 31 -x V C D E F                           | dump C to D E F: kdump none 31
tests       | --reassemble D E F                                   | reassemble D E to F
tests       | -b 8 C F                                             | dump C to F: kdump none 0
tests       | --cyclic-buffer 1024 --non-mmap C F                  | dump C to F: kdump none 0, read
tests       | --work-dir /tmp --splitblock-size 4 C F              | dump C to F: kdump none 0
tests       | -L 5G -c C F                                         | dump C to F: kdump zlib 0, limit 5368709120
tests       | -D C F                                               | dump C to F: kdump none 0, messages 15
tests       | --show-stats -d 31 --dry-run C                       | dry-run C: kdump none 31, messages 23
tests       | --dry-run -l -d 31 C F                               | dry-run C: kdump lzo 31
tests       | --partial-dmesg C F                                  | dmesg C to F
tests       | -v                                                   | version
tests       | -h                                                   | help
tests       | --help                                               | help
getopt      | -ld31 C F                                            | dump C to F: kdump lzo 31
getopt      | -l C F -d 31                                         | dump C to F: kdump lzo 31
getopt      | -l -c C F                                            | dump C to F: kdump zlib 0
getopt      | -d 1 -d 31 --message 7 --num-thread=2 C F            | dump C to F: kdump none 31, threads 2
getopt      | -d x C F                                             | dump C to F: kdump none 0
getopt      | -d 31,x C F                                          | dump C to F: kdump none 31,0
getopt      | -d ,, C F                                            | dump C to F: kdump none 0
getopt      | -d 31,32 C F                                         | Dump_level(32) is invalid.
getopt      | --message-level abc C F                              | dump C to F: kdump none 0, messages 0
getopt      | --num-threads -1 C F                                 | dump C to F: kdump none 0, threads -1
getopt      | --num-threads 0 C F                                  | dump C to F: kdump none 0, threads 0
getopt      | -- C F                                               | dump C to F: kdump none 0
getopt      | -q C F                                               | invalid option -- 'q'
getopt      | --nothing C F                                        | unrecognized option '--nothing'
getopt      | --d C F                                              | option '--d' is ambiguous
getopt      | C F -d                                               | option requires an argument -- 'd'
operands    | -c -d 31                                             | invalid
operands    | C                                                    | invalid
operands    | C D F                                                | invalid
operands    | -F C F                                               | invalid
operands    | --split C F                                          | invalid
operands    | --dump-dmesg C                                       | invalid
operands    | --dump-dmesg -F C F                                  | invalid
operands    | -R                                                   | invalid
operands    | -R -F F                                              | invalid
operands    | --mem-usage                                          | invalid
combined    | -E -l C F                                            | invalid
combined    | -E --num-threads=2 C F                               | --num-threads cannot used with ELF format.
combined    | --split -F C D E                                     | invalid
combined    | --split --num-threads 2 C D E                        | invalid
refused     | -e C F                                               | -e is refused
refused     | -g F -x V                                            | -g is refused
refused     | --xen-syms xen C F                                   | --xen-syms is refused
refused     | --xen-vmcoreinfo xen C F                             | --xen-vmcoreinfo is refused
refused     | --xen_phys_start 0 C F                               | --xen_phys_start is refused
refused     | --diskset=a --diskset=b F                            | --diskset is refused
refused     | --config filter.conf -x V C F                        | --config is refused
refused     | --eppic macro.c -x V C F                             | --eppic is refused
refused     | --extension a.so C F                                 | --extension is refused
refused     | --vtop 0xffff888000000000 C F                        | --vtop is refused
refused     | --check-params --config filter.conf C F              | --config is refused
refused     | -L nothing C F                                       | -L nothing: expected a size
";

/// Describes a command line as the table does.
fn describe(options: &Options) -> String {
    let task = match options.task() {
        Ok(_) if options.check_params => return "check".into(),
        Ok(task) => task,
        Err(Invalid::Combination) => return "invalid".into(),
        Err(Invalid::Because(reason)) => return reason,
    };
    let mut out = match &task {
        Task::Dump { source, outputs } => {
            let outputs: Vec<_> = outputs.iter().map(|path| path.display().to_string()).collect();
            let to = if outputs.is_empty() { String::new() } else { format!(" to {}", outputs.join(" ")) };
            format!("dump {}{to}: {}", source.display(), how(options))
        }
        Task::DryRun { source } => format!("dry-run {}: {}", source.display(), how(options)),
        Task::Dmesg { source, output: None } => format!("dmesg {}", source.display()),
        Task::Dmesg { source, output: Some(output) } => {
            format!("dmesg {} to {}", source.display(), output.display())
        }
        Task::Rearrange { output } => format!("rearrange to {}", output.display()),
        Task::Reassemble { parts, output } => {
            let parts: Vec<_> = parts.iter().map(|path| path.display().to_string()).collect();
            format!("reassemble {} to {}", parts.join(" "), output.display())
        }
        Task::MemUsage { source } => format!("mem-usage {}", source.display()),
        Task::Version => "version".into(),
        Task::Help => "help".into(),
    };
    for (present, text) in [
        (options.threads.is_some(), format!("threads {}", options.threads.unwrap_or(0))),
        (options.message_level != 7, format!("messages {}", options.message_level)),
        (options.overwrite, "overwrite".into()),
        (options.size_limit.is_some(), format!("limit {}", options.size_limit.unwrap_or(0))),
        (options.no_mmap, "read".into()),
    ] {
        if present {
            out += ", ";
            out += &text;
        }
    }
    out
}

fn how(options: &Options) -> String {
    let levels: Vec<_> = options.levels.iter().map(ToString::to_string).collect();
    let levels = levels.join(",");
    if options.elf {
        return format!("{}elf {levels}", if options.flattened { "flattened " } else { "" });
    }
    let format = if options.flattened { "flattened" } else { "kdump" };
    format!("{format} {} {levels}", options.codec.map_or("none", pagehaul_codec::Codec::name))
}

#[test]
fn every_form_means_what_makedumpfile_makes_of_it() {
    let mut forms = 0;
    for form in FORMS.lines().filter(|line| !line.is_empty()) {
        let [_, line, expected] = form.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{form}")
        };
        let described = describe(&Options::parse(line.split_whitespace().map(OsString::from)));
        // Reasons may go on.
        assert!(described.starts_with(expected), "{line}: {described}, expected {expected}");
        assert!(described == expected || !expected.starts_with("dump"), "{line}: {described}");
        forms += 1;
    }
    assert!(forms > 80, "{forms}");
}
