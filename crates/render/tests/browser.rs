//! The web page of `triage` in a real browser, which clicks: `scripts/test_pages.sh`.
#![cfg(feature = "html")]

mod common {
    pub mod browser;
    pub mod report;
}

use std::fs;

use common::browser::Browser;
use common::report::{crash, stack, task};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Visible rows of a section.
fn rows(browser: &mut Browser, section: &str) -> u64 {
    let rows = format!("[...document.querySelectorAll('#{section} tbody tr, #{section} ol > li')]");
    browser.ask(&format!("{rows}.filter(row => row.offsetParent !== null).length")).as_u64().unwrap()
}

/// A browser with the page of a crash, whose files go with the directory.
fn open() -> (Browser, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let others = (100..160).map(|pid| task(pid, if pid < 110 { "nginx" } else { "worker" }, 'S')).collect();
    let crash = crash(others, |task| Some(stack(&["schedule", &task.comm, "do_syscall_64"])));
    let file = directory.path().join("page.html");
    fs::write(&file, crash.page()).unwrap();
    let mut browser = Browser::start(&directory.path().join("profile"));
    browser.open(&file);
    (browser, directory)
}

#[test]
#[ignore = "needs Chromium"]
fn a_click_on_a_task_shows_its_stack() {
    let (mut browser, _directory) = open();
    let shown = "document.querySelector('#waits .shown')";
    assert_eq!(browser.ask(&format!("{shown}.offsetParent")), Value::Null);
    browser.click("document.querySelector('#waits svg a.node.cycle rect')");
    let text = browser.ask(&format!("{shown}.innerText"));
    assert!(text.as_str().unwrap().contains("mutex_lock+0x10/0x20"), "{text}");
    assert_eq!(browser.ask("location.hash"), "");
    browser.click(&format!("{shown}.querySelector('button')"));
    assert_eq!(browser.ask(&format!("{shown}.offsetParent")), Value::Null);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
#[ignore = "needs Chromium"]
fn tasks_are_searched_filtered_and_sorted() {
    let (mut browser, _directory) = open();
    let all = rows(&mut browser, "tasks");
    assert_eq!(all, 68);
    browser.click("document.querySelector('#tasks input')");
    browser.type_text("nginx");
    assert_eq!(rows(&mut browser, "tasks"), 10);
    assert_eq!(browser.ask("document.querySelector('#tasks output').textContent"), "10 of 68");
    browser.ask("document.querySelector('#tasks input').select()");
    browser.type_text("wait");
    // The waiters, of which all are blocked.
    browser.click("document.querySelector('#tasks button[data-only=D]')");
    assert_eq!(rows(&mut browser, "tasks"), 4);
    browser.click("document.querySelector('#tasks button[data-only=S]')");
    assert_eq!(rows(&mut browser, "tasks"), 0);
    browser.click("document.querySelector('#tasks button[data-only=S]')");
    browser.ask(
        "document.querySelector('#tasks input').value = ''; document.querySelector('#tasks input').oninput()",
    );
    let first = "document.querySelector('#tasks tbody tr').id";
    // Numbers are not sorted as text: 159 s are more than 20 s.
    let last_run = "document.querySelectorAll('#tasks th button')[6]";
    browser.click(last_run);
    assert_eq!(browser.ask(first), "pid-1");
    browser.click(last_run);
    assert_eq!(browser.ask(first), "pid-159");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
#[ignore = "needs Chromium"]
fn links_reveal_what_they_lead_to() {
    let (mut browser, _directory) = open();
    // A row that the search hides.
    browser.click("document.querySelector('#tasks input')");
    browser.type_text("nginx");
    browser.click("document.querySelector(\"#cpus a[href='#pid-30']\")");
    assert_eq!(browser.ask("document.getElementById('pid-30').offsetParent !== null"), true);
    // A stack that is closed.
    browser.click("document.querySelector(\"#cpus a[href^='#stack-']\")");
    let open = "document.getElementById(location.hash.slice(1)).open";
    assert_eq!(browser.ask(open), true);
    // The map below the bar of memory, and the row of a use.
    assert_eq!(browser.ask("document.querySelector('#memory .treemap').checkVisibility()"), false);
    browser.click("document.querySelector('#memory summary .hint')");
    assert_eq!(browser.ask("document.querySelector('#memory .treemap').checkVisibility()"), true);
    browser.click("document.querySelector('#memory .treemap a.heading')");
    assert_eq!(browser.ask("location.hash.startsWith('#use-')"), true);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
#[ignore = "needs Chromium"]
fn flame_graphs_zoom_and_the_log_is_filtered() {
    let (mut browser, _directory) = open();
    let flame = |name: &str| {
        format!(
            "[...document.querySelectorAll('#stacks .flames:last-of-type div')].find(one => one.textContent === '{name}')"
        )
    };
    let width = |name: &str| format!("parseFloat({}.style.width)", flame(name));
    assert!(browser.ask(&width("nginx")).as_f64().unwrap() < 20.0);
    browser.click(&flame("nginx"));
    assert_eq!(browser.ask(&width("nginx")), json!(100));
    assert_eq!(browser.ask(&format!("{}.style.display", flame("worker"))), "none");
    browser.click(&flame("all"));
    assert!(browser.ask(&width("nginx")).as_f64().unwrap() < 20.0);
    assert_eq!(rows(&mut browser, "log"), 42);
    browser.click("document.querySelector('#log button[data-only=important]')");
    assert_eq!(rows(&mut browser, "log"), 2);
    browser.click("document.querySelector('#log button[data-only=marked]')");
    assert_eq!(rows(&mut browser, "log"), 1);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
#[ignore = "needs Chromium"]
fn hostile_names_run_nothing_and_no_page_is_wider_than_a_telephone() {
    let (mut browser, _directory) = open();
    // The policy allows the page's own script alone.
    browser.ask("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = 1' }))");
    assert_eq!(browser.ask("window.ran"), Value::Null);
    let said = std::mem::take(&mut browser.complaints);
    assert!(said.iter().all(|one| one.contains("Content Security Policy")) && !said.is_empty(), "{said:?}");
    assert_eq!(browser.ask("document.querySelectorAll('img').length"), 0);
    let narrow = json!({ "width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    assert_eq!(browser.ask("document.documentElement.scrollWidth"), 400);
    // Without the script all text is there, and nothing that does nothing.
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.call("Page.reload", json!({}));
    while browser.ask("document.readyState") != "complete" {}
    assert_eq!(browser.ask("document.querySelector('.tools').offsetParent"), Value::Null);
    assert_eq!(rows(&mut browser, "tasks"), 68);
}
