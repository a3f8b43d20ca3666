//! Traces made up for what real ones seldom hold, as text.

use pagehaul_reclaim::ReclaimReport;
use pagehaul_reclaim::report::analyse;
use pagehaul_trace::{Input, TraceFile};

fn report(lines: &[&str]) -> ReclaimReport {
    let text = lines.join("\n");
    let mut recording = TraceFile::from_input(Input::memory(text.into_bytes(), "trace.txt")).unwrap();
    analyse(&mut recording, "trace.txt", "trace").unwrap()
}

fn value(report: &ReclaimReport, name: &str) -> Option<f64> {
    let mut rows = report.sections.iter().flat_map(|section| &section.rows);
    rows.find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}")).mean()
}

#[test]
fn a_trace_of_linux_4_4_is_understood() {
    let report = report(&[
        " dd-100 [000] d... 10.000000: mm_vmscan_wakeup_kswapd: nid=0 zid=2 order=0",
        " kswapd0-45 [001] d... 10.000100: mm_vmscan_kswapd_wake: nid=0 order=0",
        " dd-100 [000] d... 10.001000: mm_vmscan_direct_reclaim_begin: order=2 may_writepage=1 gfp_flags=GFP_KERNEL",
        " dd-100 [000] d... 10.002000: mm_vmscan_lru_isolate: isolate_mode=0 order=2 nr_requested=32 nr_scanned=32 nr_taken=30 file=1",
        " dd-100 [000] d... 10.002000: mm_vmscan_lru_isolate: isolate_mode=2 order=2 nr_requested=32 nr_scanned=99 nr_taken=99 file=1",
        " dd-100 [000] d... 10.003000: mm_vmscan_writepage: page=ffffea0000000000 pfn=7 flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC",
        " dd-100 [000] d... 10.003500: writeback_congestion_wait: usec_timeout=100000 usec_delayed=400",
        " dd-100 [000] d... 10.004000: mm_vmscan_lru_shrink_inactive: nid=0 zid=2 nr_scanned=32 nr_reclaimed=20 priority=12 flags=RECLAIM_WB_FILE|RECLAIM_WB_ASYNC",
        " dd-100 [000] d... 10.005000: mm_vmscan_direct_reclaim_end: nr_reclaimed=20",
        " kswapd0-45 [001] d... 10.006000: mm_vmscan_kswapd_wake: nid=0 order=1",
        " kswapd0-45 [001] d... 10.010100: mm_vmscan_kswapd_sleep: nid=0",
    ]);
    let expected = [
        ("Direct reclaims", 1.0),
        ("Direct reclaim pages scanned", 32.0),
        ("Direct reclaim file pages scanned", 32.0),
        ("Direct reclaim anon pages scanned", 0.0),
        ("Direct reclaim pages reclaimed", 20.0),
        ("Direct reclaim write file async I/O", 1.0),
        ("Wake kswapd requests", 1.0),
        ("Kswapd wakeups", 1.0),
        ("Kswapd re-wakeups", 1.0),
        ("Time stalled direct reclaim (ms)", 4.0),
        ("Time kswapd awake (ms)", 10.0),
        ("Time throttled in reclaim (ms)", 0.4),
    ];
    for (name, expected) in expected {
        let found = value(&report, name).unwrap();
        assert!((found - expected).abs() < 1e-9, "{name}: {found}");
    }
}

#[test]
fn unfinished_intervals_count_up_to_the_end() {
    let report = report(&[
        " kswapd0-45 [001] 10.000000: mm_vmscan_lru_isolate: classzone=2 order=0 nr_requested=32 nr_scanned=8 nr_skipped=0 nr_taken=8 lru=inactive_anon",
        " kswapd0-45 [001] 10.002000: mm_vmscan_kswapd_sleep: nid=0",
        " kswapd0-45 [001] 10.006000: mm_vmscan_kswapd_wake: nid=0 order=0",
        " dd-7 [000] 10.004000: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_KERNEL",
        " sh-8 [000] 10.009000: mm_vmscan_direct_reclaim_end: nr_reclaimed=3",
        " sh-8 [000] 10.010000: mm_vmscan_wakeup_kswapd: nid=0 order=0 gfp_flags=GFP_KERNEL",
    ]);
    assert_eq!(value(&report, "Time stalled direct reclaim (ms)"), Some(6.0));
    // KswapdState from the begin, and again to the end.
    assert_eq!(value(&report, "Time kswapd awake (ms)"), Some(2.0 + 4.0));
    assert_eq!((report.lost.unfinished, report.lost.unmatched), (2, 1));
    assert!(report.warnings.iter().any(|warning| warning.contains("awake when the trace began")));
}

#[test]
fn intervals_over_lost_events_stay_out_of_percentiles() {
    let report = report(&[
        " dd-7 [000] 10.000000: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_NOFS",
        "CPU:0 [LOST 1000 EVENTS]",
        " dd-7 [000] 12.000000: mm_vmscan_direct_reclaim_end: nr_reclaimed=3",
        " dd-7 [000] 12.000000: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_NOFS",
        " dd-7 [000] 12.001000: mm_vmscan_direct_reclaim_end: nr_reclaimed=3",
    ]);
    assert_eq!((report.lost.events, report.lost.uncertain), (1000, 1));
    assert_eq!(value(&report, "Direct stall max (ms)"), Some(1.0));
    assert_eq!(value(&report, "Time stalled direct reclaim (ms)"), Some(2001.0));
    assert!(report.warnings.iter().any(|warning| warning.contains("events were lost (1000 counted")));
}

#[test]
fn requests_are_kept_apart_from_limits() {
    let report = report(&[
        " app-7 [000] 10.000000: mm_vmscan_memcg_reclaim_begin: order=0 gfp_flags=GFP_HIGHUSER_MOVABLE pid=7 memcg_id=77 ",
        " app-7 [000] 10.001000: mm_vmscan_throttled: nid=0 usec_timeout=100000 usect_delayed=500 reason=VMSCAN_THROTTLE_NOPROGRESS",
        " app-7 [000] 10.001100: mm_shrink_slab_start: super_cache_scan+0x0/0x1b0 000000008d1e9f5c: nid: 0 pid: 7 memcg_id: 77 objects to shrink 5 gfp_flags GFP_HIGHUSER_MOVABLE cache items 9 delta 1 total_scan 5 priority 12 ",
        " app-7 [000] 10.001400: mm_shrink_slab_end: super_cache_scan+0x0/0x1b0 000000008d1e9f5c: nid: 0 pid: 7 memcg_id: 77 unused scan count 0 new scan count 0 total_scan 5 last shrinker return val 4 ",
        " app-7 [000] 10.002000: mm_vmscan_memcg_reclaim_end: nr_reclaimed=32 pid=7 memcg_id=77 ",
        " oomd-9 [000] 10.003000: mm_vmscan_memcg_reclaim_begin: order=0 gfp_flags=GFP_KERNEL pid=9 memcg_id=78 ",
        " oomd-9 [000] 10.006000: mm_vmscan_memcg_reclaim_end: nr_reclaimed=64 pid=9 memcg_id=78 ",
        " app-7 [000] 10.007000: mm_vmscan_node_reclaim_begin: nid=1 order=0 gfp_flags=GFP_HIGHUSER",
        " app-7 [000] 10.008000: mm_vmscan_node_reclaim_end: nr_reclaimed=1 pid=7 memcg_id=0 ",
    ]);
    let times =
        ["Time stalled, memcg limit (ms)", "Time stalled, memcg proactive (ms)", "Time stalled, node (ms)"];
    assert_eq!(times.map(|name| value(&report, name)), [Some(2.0), Some(3.0), Some(1.0)]);
    let text = serde_json::to_string(&report).unwrap();
    for part in ["throttled: no progress", "super_cache_scan", "id 77", "id 78"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
