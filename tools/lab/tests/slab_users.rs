//! Who allocated slab objects, in guests booted with slub_debug=U.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

mod common;

use std::path::Path;

use common::succeeds;
use lab::Config;
use serde_json::Value;

/// The cache that messages of the scenario are in has a name of its own since 6.11; before, it is that of all of their size.
fn is_of_messages(cache: &Value) -> bool {
    cache == "msg_msg-4k" || cache == "kmalloc-cg-4k" || cache == "kmalloc-4k"
}

fn check(kernel: &str, vmcore: &Path) {
    let report: Value = serde_json::from_str(&succeeds(&["pages", "--owners", "--json"], &[vmcore])).unwrap();
    let users = &report["slab_users"];
    assert_eq!(users["is_whole"], true, "{kernel}: {}", report["missing"]);
    let largest = users["largest"].as_array().unwrap();
    let first = &largest[0];
    assert!(is_of_messages(&first["cache"]), "{kernel}: {first}");
    assert_eq!(first["pids"], serde_json::json!([1]), "{kernel}");
    let stack: Vec<&str> =
        first["stack"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let position = |name: &str| stack.iter().position(|function| function.ends_with(name));
    assert!(position("load_msg").unwrap() < position("do_msgsnd").unwrap(), "{kernel}: {stack:?}");
    // The scenario fills the memory by nothing else: this stack has nearly all objects of the cache, and no more.
    let rows = report["rows"].as_array().unwrap();
    let slab = rows.iter().find(|row| row["kind"] == "slab").unwrap();
    let mut owners = slab["owners"].as_array().unwrap().iter();
    let cache = owners.find(|owner| owner["name"] == first["cache"]).unwrap();
    let bytes = cache["pages"].as_u64().unwrap() * report["page_size"].as_u64().unwrap();
    let allocated = first["bytes"].as_u64().unwrap();
    assert!(allocated <= bytes && allocated * 100 >= bytes * 85, "{kernel}: {allocated} of {bytes}");
    // Nearly each object in use has a record.
    let (objects, unrecorded) = (users["objects"].as_u64().unwrap(), users["unrecorded"].as_u64().unwrap());
    assert!(objects > 50_000 && unrecorded < 100, "{kernel}: {unrecorded} of {objects} are not recorded");
    let triage = succeeds(&["triage"], &[vmcore]);
    assert!(triage.contains("allocated in load_msg < do_msgsnd"), "{kernel}: {triage}");
}

#[test]
fn records_of_slab_objects_name_who_allocated_them() {
    let all = ["5.10", "6.1", "6.12", "7.2"];
    let guest = |kernel: &str| Config {
        kernel: kernel.into(),
        cpus: 1,
        fill: 20,
        scenario: Some("oom-slab".into()),
        append: "slub_debug=U".into(),
        ..Config::default()
    };
    common::each_crash([&["6.12"], &all], guest, |kernel, crash| check(kernel, &crash.vmcore()));
}
