//! -h and -v.

use crate::done::Done;
use crate::error::Error;
use crate::host::{Host, HostError};

/// The version of makedumpfile whose command line this is.
const COMPATIBLE: &str = "1.7.9";

const USAGE: &str = "\
pagehaul as makedumpfile: captures crash dumps with makedumpfile's command line

Usage:
  makedumpfile [-c|-l|-p|-z|-E] [-d LEVEL] [OPTION...] VMCORE DUMPFILE
  makedumpfile -F [OPTION...] VMCORE                    flattened dump on standard output
  makedumpfile -R DUMPFILE                              flattened dump on standard input to a file
  makedumpfile --split [OPTION...] VMCORE DUMPFILE...   dump in parts
  makedumpfile --reassemble DUMPFILE... DUMPFILE        parts to one dump, the last file
  makedumpfile --dump-dmesg VMCORE LOGFILE              kernel log; with -F, on standard output
  makedumpfile --mem-usage /proc/kcore                  pages of the running kernel by class

Options:
  -c, -l, -p, -z            compress pages with zlib, lzo, snappy, zstd [default: uncompressed]
  -E                        ELF format
  -d LEVEL[,LEVEL...]       pages to exclude, the sum of 1 zero, 2 cache, 4 private cache, 8 user, 16 free [default: 0];
                            when the disk is full, start again with the next level
  -F                        flattened format on standard output
  -f                        overwrite DUMPFILE
  -L SIZE                   end the dump before it takes more of the disk; holes of the file do not count
  --num-threads N           threads at most [default: every CPU]
  --message-level N         sum of 1 progress, 2 common, 4 error, 8 debug, 16 report [default: 7]
  -D, --show-stats          add debug messages; add the report
  --dry-run                 classify pages, write nothing
  --check-params            check the command line only
  --non-mmap                read the vmcore instead of mapping it
  -v, -h                    print the version; print this
  -b, -i, -x, --cyclic-buffer, --splitblock-size, --work-dir
                            accepted; pagehaul does not need them

Refused: -e -g -X --config --diskset --eppic --extension --vtop --xen-syms --xen-vmcoreinfo --xen_phys_start

Exit status: 0, the output is complete; 1, it is incomplete and marked so, or there is none.

`pagehaul --help` lists the commands of pagehaul itself.
";

/// Prints how to use it.
pub(crate) fn usage(host: &dyn Host) -> Result<Done, Error> {
    print(host, USAGE)
}

/// Prints the version and the codecs, in makedumpfile's form.
pub(crate) fn version(host: &dyn Host) -> Result<Done, Error> {
    let text = format!(
        "makedumpfile: version {COMPATIBLE} (pagehaul {})\nlzo\tenabled\nsnappy\tenabled\nzstd\tenabled\n",
        env!("CARGO_PKG_VERSION")
    );
    print(host, &text)
}

/// A reader that has seen enough is not an error.
fn print(host: &dyn Host, text: &str) -> Result<Done, Error> {
    match host.print(text.as_bytes()) {
        Ok(()) | Err(HostError::Closed) => Ok(Done::Printed),
        Err(error) => Err(error.into()),
    }
}
