//! /proc/vmallocinfo, and the snapshot made of it.

use pagehaul_render::vmalloc::usage as draw;
use pagehaul_vmalloc::{Areas, Usage};

/// Runs the target.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // The first part is the areas, what follows a zero byte is /proc/meminfo.
    let (info, meminfo) = text.split_once('\0').unwrap_or((&text, ""));
    let Ok(areas) = Areas::parse(info) else { return };
    let usage = Usage::new(&areas, meminfo, 4096);
    let sum: u64 = usage.kinds.values().map(|sum| sum.areas).sum();
    assert_eq!(sum, areas.list.len() as u64);
    draw(&usage);
}
