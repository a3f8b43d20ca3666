//! Reports of real recordings: Linux 6.18, three runs each of a program that writes and reads a file in a memory cgroup of
//! 48 MiB (a) and 32 MiB (b); Debian's 6.1, 6.12 and 7.2 in guests of 192 MiB with too much to do (direct reclaim, kswapd); and the
//! first 600 events of a similar trace as `trace-cmd report` prints them.
//!
//! `UPDATE_GOLDENS=1 cargo test` writes the expected texts anew: look at the difference before committing it.

use std::path::Path;

use pagehaul_reclaim::{Comparison, ReclaimReport, analyse};
use pagehaul_render::reclaim::{comparison, comparison_page, report as text, report_page};
use pagehaul_trace::TraceFile;

fn report(name: &str, label: &str) -> ReclaimReport {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reclaim/tests/data").join(name);
    analyse(&mut TraceFile::open(&path).unwrap(), name, label).unwrap()
}

fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(expected == found, "{name} differs; UPDATE_GOLDENS=1 shows how:\n{found}");
}

#[test]
fn the_report_is_as_before() {
    golden("memcg-a.txt", &text(&report("memcg-a.pht", "a")));
    for kernel in ["6.1", "6.12", "7.2"] {
        let name = format!("guest-{kernel}");
        golden(&format!("{name}.txt"), &text(&report(&format!("{name}.pht"), kernel)));
    }
    golden("report.txt", &text(&report("report.txt.gz", "text")));
}

#[test]
fn the_comparison_is_as_before() {
    let compared = Comparison::new(&[report("memcg-a.pht", "a"), report("memcg-b.pht", "b")]);
    golden("compared.txt", &comparison(&compared));
}

#[test]
fn pages_need_no_network_and_no_trust() {
    let mut report = report("memcg-a.pht", "a <script>alert(1)</script>");
    report.source.machine.command = vec!["sh".into(), "-c".into(), "echo '<b>' & x".into()];
    let reports = [report];
    for page in [
        report_page(&reports),
        comparison_page(&Comparison::new(&[reports[0].clone(), reports[0].clone()]), &reports),
    ] {
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
        assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
        assert_eq!(page.matches("<table>").count(), page.matches("</table>").count());
        assert!(page.contains("<svg") && !page.contains("NaN") && !page.contains("inf,"));
    }
}
