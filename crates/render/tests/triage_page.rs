//! The web page of `triage`: what holds of every page, and of the largest.
#![cfg(feature = "html")]

mod common {
    pub mod report;
}

use std::collections::{BTreeMap, BTreeSet};

use common::report::{Crash, crash, stack, task};
use pagehaul_inspect::{Task, Wait};

/// The most that a page of 100,000 tasks may have.
const MOST: usize = 2_000_000;

/// A tag of a page: its name, empty if it ends an element, and its attributes.
struct Tag<'a> {
    name: &'a str,
    attributes: BTreeMap<&'a str, &'a str>,
}

/// Reads the tags of a page that the template wrote: attributes have quotes, and text has no `<`.
fn tags(page: &str) -> Vec<Tag<'_>> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let mut in_quotes = false;
        let end = rest
            .find(|c| {
                in_quotes ^= c == '"';
                c == '>' && !in_quotes
            })
            .expect("tags end");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let (name, mut text) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = BTreeMap::new();
        while let Some((key, value)) = text.split_once("=\"") {
            let (value, after) = value.split_once('"').expect("values end");
            attributes.insert(key.rsplit(' ').next().unwrap_or(key).trim(), value);
            text = after.trim_start();
        }
        // What styles and scripts have is no markup.
        if name == "script" || name == "style" {
            let end = rest.find(&format!("</{name}>")).expect("they end");
            rest = &rest[end..];
        }
        if !name.starts_with(['/', '!']) {
            found.push(Tag { name, attributes });
        }
    }
    found
}

fn check(page: &str) {
    let tags = tags(page);
    let mut ids = BTreeSet::new();
    for id in tags.iter().filter_map(|tag| tag.attributes.get("id")) {
        assert!(ids.insert(*id), "{id} is there twice");
    }
    let links = tags.iter().filter_map(|tag| tag.attributes.get("href"));
    for link in links {
        let place = link.strip_prefix('#').expect("links stay on the page");
        assert!(ids.contains(place), "{link} leads nowhere");
    }
    // One title, and no level is left out below it.
    let levels: Vec<u32> = tags
        .iter()
        .filter_map(|tag| tag.name.strip_prefix('h').and_then(|level| level.parse().ok()))
        .collect();
    assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1);
    assert!(levels.first() == Some(&1) && levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    // Only what the template knows.
    let known = [
        "a", "b", "body", "br", "button", "code", "details", "div", "footer", "g", "h1", "h2", "h3", "head",
        "html", "i", "input", "li", "main", "mark", "meta", "nav", "ol", "output", "p", "path", "pre",
        "rect", "script", "section", "small", "span", "style", "summary", "svg", "table", "tbody", "td",
        "text", "th", "thead", "time", "title", "tr",
    ];
    for tag in &tags {
        assert!(known.contains(&tag.name), "<{}>", tag.name);
        assert!(tag.attributes.keys().all(|key| !key.starts_with("on") && *key != "src"), "<{}>", tag.name);
    }
    assert_eq!(tags.iter().filter(|tag| tag.name == "script").count(), 1);
}

fn small() -> Crash {
    crash((100..160).map(|pid| task(pid, "worker", 'S')).collect(), |_| Some(stack(&["schedule", "epoll"])))
}

#[test]
fn every_link_leads_somewhere_and_nothing_is_twice() {
    let page = small().page();
    check(&page);
    // A section's title is not repeated in it.
    for title in ["What happened", "CPUs", "Who waits for whom", "Tasks", "Memory", "Log"] {
        assert_eq!(page.matches(&format!("<h2>{title}</h2>")).count(), 1, "{title}");
        assert!(!page.contains(&format!("<pre>{title}")), "{title}");
    }
}

#[test]
fn what_the_dump_says_is_text() {
    let page = small().page();
    for forbidden in ["<img", "\u{1b}", "\u{202e}", "onerror=alert(1)>", "\nVerdict"] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
    assert!(page.contains("&lt;/script&gt;&lt;img") && page.matches("</script>").count() == 1);
}

#[test]
fn a_deadlock_is_drawn_as_a_cycle() {
    let page = small().page();
    let (_, graph) = page.split_once("<svg class=\"graph\"").unwrap();
    let (graph, _) = graph.split_once("</svg>").unwrap();
    // Two arrows and two nodes; four tasks that wait behind it are one node.
    assert_eq!(graph.matches("class=\"edge cycle\"").count(), 2, "{graph}");
    assert_eq!(graph.matches("class=\"node cycle\"").count(), 2, "{graph}");
    assert!(graph.contains("4 tasks, up to 23.00 s"), "{graph}");
    // The stack of a holder is one click away.
    assert!(graph.contains("<a class=\"node cycle\" href=\"#stack-"), "{graph}");
    assert!(page.contains("deadlock</b>: left/10 waits for right/11, which waits for left/10"), "{page}");
}

#[test]
fn cpus_show_how_long_they_took_no_tick() {
    let page = small().page();
    assert!(page.contains("no tick for 26.50 s") && page.contains("26.50 s before the crash"), "{page}");
    assert_eq!(page.matches("class=\"tick\" style=\"width:100.00%\"").count(), 1);
}

#[test]
fn lines_that_name_the_crash_are_marked() {
    let page = small().page();
    assert!(page.contains("<mark>Kernel panic - not syncing: hung_task: blocked tasks</mark>"), "{page}");
    assert!(page.contains("usb 1-0: new device"), "{page}");
}

#[test]
fn memory_has_a_bar_a_map_and_a_table() {
    let page = small().page();
    let (_, memory) = page.split_once("<section id=\"memory\">").unwrap();
    let (memory, _) = memory.split_once("</section>").unwrap();
    assert!(memory.contains("class=\"treemap\"") && memory.contains("the rest, not looked at"), "{memory}");
    // The last row is the sum.
    assert!(memory.contains("<td>262,144</td>"), "{memory}");
}

/// All PIDs of the table of tasks, whose groups have ranges.
fn listed(page: &str) -> u64 {
    let (_, tasks) = page.split_once("<section id=\"tasks\">").unwrap();
    let (tasks, _) = tasks.split_once("</section>").unwrap();
    let ranges = tasks.split("<span class=\"pids\">").skip(1).map(|rest| rest.split('<').next().unwrap());
    let number = |range: &str| match range.split_once('-') {
        Some((from, to)) => to.parse::<u64>().unwrap() - from.parse::<u64>().unwrap() + 1,
        None => 1,
    };
    ranges.flat_map(|text| text.split(' ')).map(number).sum()
}

fn large(name: impl Fn(u32) -> String, state: impl Fn(u32) -> char, deep: bool) -> (Crash, String) {
    let others: Vec<Task> = (0..100_000_u32).map(|at| task(1000 + at, &name(at), state(at))).collect();
    let mut crash = crash(others, |task| {
        // As many stacks as tasks, or a hundred of them.
        let which = if deep { task.pid } else { task.pid % 100 };
        let names: Vec<String> =
            (0..20).map(|level| format!("function_{level}_{}", which * (level / 6))).collect();
        (task.pid < 21_000).then(|| stack(&names.iter().map(String::as_str).collect::<Vec<_>>()))
    });
    // One lock with very many waiters, and very many that were not found.
    let pids = crash.report.tasks.all.iter().map(|task| task.pid);
    crash.report.locks.unknown = pids.clone().step_by(2).collect();
    let wait = |pid| Wait { pid, comm: "waiter".into(), seconds: None };
    crash.report.locks.held[2].waiters = pids.step_by(3).map(wait).collect();
    let page = crash.page();
    (crash, page)
}

#[test]
fn a_page_of_100_000_tasks_is_small_and_has_them_all() {
    // A pool of threads, as many names as tasks, and blocked tasks with as many stacks.
    let pool = large(|at| format!("pool-{}", at % 7), |_| 'S', false);
    let named = large(
        |at| format!("{:x}", u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        |at| if at % 2 == 0 { 'S' } else { 'D' },
        true,
    );
    for (crash, page) in [pool, named] {
        check(&page);
        let sections = page.split("<section id=\"").skip(1);
        let sizes: Vec<(&str, usize)> =
            sections.map(|text| (text.split('"').next().unwrap_or_default(), text.len())).collect();
        assert!(page.len() < MOST, "{} bytes: {sizes:?}", page.len());
        assert_eq!(listed(&page), crash.report.tasks.all.len() as u64);
    }
}
