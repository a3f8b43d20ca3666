//! Recordings of the function graph tracer in the layouts of different kernels. Built here, because a real
//! recording brings the kernel's symbols along.

use std::collections::BTreeMap;
use std::path::Path;

use pagehaul_latency::trace_file::{self, Intervals};
use pagehaul_latency::{LatencyError, Options, Unit};
use pagehaul_trace::pht::PhtWriter;
use pagehaul_trace::{EventSource, Input, MachineInfo, Symbols, TraceFile};

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;\n";

/// `funcgraph_exit`: a name, the fields that follow `func`, and the bytes of a call.
struct Layout {
    name: &'static str,
    fields: &'static str,
    record: fn(began: u64, ended: u64) -> Vec<u8>,
}

const LAYOUTS: [Layout; 2] = [
    // Linux 4.4 to 5.x: overrun is a long, depth comes last.
    Layout {
        name: "old",
        fields: "\tfield:unsigned long long calltime;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long long rettime;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long overrun;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:int depth;\toffset:40;\tsize:4;\tsigned:1;\n",
        record: |began, ended| {
            [&began.to_le_bytes()[..], &ended.to_le_bytes(), &[0; 8], &[1, 0, 0, 0, 0, 0, 0, 0]].concat()
        },
    },
    // Debian's 6.1.
    Layout {
        name: "6.1",
        fields: "\tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;\n\
            \tfield:unsigned int overrun;\toffset:20;\tsize:4;\tsigned:0;\n\
            \tfield:unsigned long long calltime;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long long rettime;\toffset:32;\tsize:8;\tsigned:0;\n",
        record: |began, ended| {
            [&[1, 0, 0, 0, 0, 0, 0, 0], &began.to_le_bytes()[..], &ended.to_le_bytes()].concat()
        },
    },
];

/// FunctionTimer by address.
const KALLSYMS: &str =
    "ffffffff81000100 t vfs_read\nffffffff81000200 t vfs_write\nffffffff81000300 t later\n";
const VFS_READ: u64 = 0xffff_ffff_8100_0100;
const VFS_WRITE: u64 = 0xffff_ffff_8100_0200;

/// Records calls: function, entry and return in nanoseconds.
fn recording(layout: &Layout, calls: &[(u64, u64, u64)]) -> TraceFile {
    let mut data = Vec::new();
    for &(function, began, ended) in calls {
        let mut payload = vec![10, 0, 0, 0, 42, 0, 0, 0];
        payload.extend(function.to_le_bytes());
        payload.extend((layout.record)(began, ended));
        assert!(payload.len().is_multiple_of(4) && payload.len() / 4 <= 28);
        // The length in words, with a time delta of 0.
        data.extend((payload.len() as u32 / 4).to_le_bytes());
        data.extend(payload);
    }
    let mut page = 1_000_000_u64.to_le_bytes().to_vec();
    page.extend((data.len() as u64).to_le_bytes());
    page.extend(data);
    page.resize(4096, 0);
    let mut writer = PhtWriter::new(Vec::new(), Path::new("graph"), 1).unwrap();
    writer.machine(&MachineInfo { clock: Some("mono".into()), ..MachineInfo::default() }).unwrap();
    writer.header_page(HEADER_PAGE).unwrap();
    let format =
        format!("name: funcgraph_exit\nID: 10\nformat:\n{COMMON}{}\nprint fmt: \"\"\n", layout.fields);
    writer.format("ftrace", &format).unwrap();
    writer.symbols(&Symbols::from_kallsyms(KALLSYMS.into())).unwrap();
    writer.pages(0, &page).unwrap();
    let bytes = writer.finish(&BTreeMap::new()).unwrap();
    TraceFile::from_input(Input::memory(bytes, "graph")).unwrap()
}

fn options(by_function: bool) -> Options {
    Options { unit: Unit::Microseconds, step: None, by_function, pids: Vec::new(), buffer_kb: 64 }
}

#[test]
fn calls_of_either_layout_are_measured() {
    let calls = [(VFS_READ, 1_000, 6_000), (VFS_WRITE, 2_000, 5_000), (VFS_READ, 10_000, 1_010_000)];
    for layout in &LAYOUTS {
        let count = |patterns: &[&str], by_function| {
            let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.into()).collect();
            let mut recording = recording(layout, &calls);
            let symbols = recording.info().symbols.clone();
            let mut reports = Vec::new();
            let take = |_, report| -> Result<(), LatencyError> {
                reports.push(report);
                Ok(())
            };
            let what = (&patterns[..], symbols);
            trace_file::measure_functions(
                &mut recording,
                what,
                &options(by_function),
                Intervals::default(),
                take,
            )
            .unwrap();
            let [report] = &reports[..] else { panic!("{} reports", reports.len()) };
            assert!(recording.losses().none());
            let histograms = report.histograms.iter();
            histograms
                .map(|entry| (entry.name.clone(), entry.histogram.count(), entry.histogram.total_ns()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            count(&["vfs_*"], false),
            [("vfs_read, vfs_write".into(), 3, 1_008_000)],
            "{}",
            layout.name
        );
        assert_eq!(
            count(&["vfs_*"], true),
            [("vfs_read".into(), 2, 1_005_000), ("vfs_write".into(), 1, 3_000)],
            "{}",
            layout.name
        );
        assert_eq!(count(&["vfs_write"], true), [("vfs_write".into(), 1, 3_000)], "{}", layout.name);
    }
}
