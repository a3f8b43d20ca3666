//! Several dumps of one crash: the rows of the whole one stay, whatever comes first. And the manifest, which has a row for each.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::{OOPS, files, fleet, machine, rows, succeeds};
use pagehaul_synth::{Era, Records, flatten};
use pagehaul_test_support::server::{Response, Server};

/// A whole dump, and copies that lack their ends.
fn dumps() -> (tempfile::TempDir, Vec<&'static str>) {
    let directory = tempfile::tempdir().unwrap();
    let image = machine(Era::V6_12, "billing", &OOPS).build();
    let bytes = image.kdump().level(31).bytes();
    let flat = flatten(&bytes, 5000, Records::Ascending);
    image.elf().write(&directory.path().join("elf")).unwrap();
    let elf = fs::read(directory.path().join("elf")).unwrap();
    let cut = |bytes: &[u8], by: usize| bytes[..bytes.len() - by].to_vec();
    let copies = [
        ("a-byte-less", cut(&bytes, 1)),
        ("a-page-less", cut(&bytes, 4096)),
        ("a-third-less", cut(&bytes, bytes.len() / 3)),
        ("flattened", cut(&flat, 5100)),
        ("elf-less", cut(&elf, 4096)),
    ];
    fs::write(directory.path().join("whole"), bytes).unwrap();
    for (name, bytes) in &copies {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    (directory, copies.map(|(name, _)| name).to_vec())
}

/// All files of tables but the manifest.
fn tables(directory: &Path, to: &str) -> BTreeMap<String, Vec<u8>> {
    let found = files(&directory.join(to)).into_iter().filter(|(name, _)| !name.contains("/manifest/"));
    found.map(|(name, bytes)| (name.split_once(to).unwrap().1.to_owned(), bytes)).collect()
}

#[test]
fn the_rows_of_the_whole_dump_stay_in_either_order() {
    let (directory, copies) = dumps();
    let directory = directory.path();
    let extract = |dumps: &[&str], to: &str| extracts(directory, &[&["--json", "--to", to], dumps].concat());
    extract(&["whole"], "alone");
    let alone = tables(directory, "alone");
    for copy in copies {
        let said = extract(&[copy], &format!("{copy}-alone"));
        assert!(said.contains("\"complete\":false"), "{copy}: {said}");
        let orders = [("first", [copy, "whole"]), ("last", ["whole", copy])];
        for (name, order) in orders {
            let to = format!("{copy}-{name}");
            order.iter().for_each(|dump| drop(extract(&[dump], &to)));
            // What only the copy had is of the same crash, and there is nothing of this kind here.
            assert!(tables(directory, &to) == alone, "{to}");
            assert_eq!(rows(&directory.join(&to), "manifest").len(), 2, "{to}");
        }
        // At the same time.
        for round in 0..4 {
            let to = format!("{copy}-both-{round}");
            let [first, second] = if round % 2 == 0 { [copy, "whole"] } else { ["whole", copy] };
            extract(&[first, second, "-j2"], &to);
            assert!(tables(directory, &to) == alone, "{to}");
        }
    }
}

#[test]
fn the_rows_of_the_whole_dump_stay_after_compact() {
    let (directory, copies) = dumps();
    let directory = directory.path();
    machine(Era::V6_1, "other", &OOPS).build().elf().write(&directory.join("other")).unwrap();
    succeeds(directory, &["extract", "whole", "other", "--to", "tables"]);
    succeeds(directory, &["compact", "tables"]);
    let before = tables(directory, "tables");
    assert!(before.keys().all(|name| name.contains("/many-")), "{:?}", before.keys());
    for copy in copies {
        extracts(directory, &[copy, "--to", "tables"]);
        assert!(tables(directory, "tables") == before, "{copy}");
    }
    // A complete one replaces them.
    succeeds(directory, &["extract", "whole", "--to", "tables"]);
    assert!(tables(directory, "tables") == before);
}

#[test]
fn rows_that_are_compact_are_not_written_again_while_another_run_goes_on() {
    let (directory, _) = dumps();
    let directory = directory.path();
    machine(Era::V6_1, "other", &OOPS).build().elf().write(&directory.join("other")).unwrap();
    succeeds(directory, &["extract", "whole", "other", "--to", "tables"]);
    succeeds(directory, &["compact", "tables"]);
    let before = tables(directory, "tables");
    // As the other run does.
    let other = fs::File::open(directory.join("tables")).unwrap();
    other.lock_shared().unwrap();
    let said = succeeds(directory, &["extract", "whole", "--to", "tables", "--json"]);
    assert!(said.contains("[\"tasks\",3]"), "{said}");
    assert!(tables(directory, "tables") == before);
    // A table that is not the same is written.
    let many = before.keys().find(|name| name.contains("/tasks/")).unwrap();
    let many = directory.join("tables").join(many.trim_start_matches('/'));
    succeeds(directory, &["extract", "other", "--to", "others"]);
    let others = tables(directory, "others");
    let (_, bytes) = others.iter().find(|(name, _)| name.contains("/tasks/")).unwrap();
    fs::write(&many, bytes).unwrap();
    succeeds(directory, &["extract", "whole", "--to", "tables"]);
    assert_eq!(tables(directory, "tables").len(), before.len() + 1);
}

/// Extracts dumps. Of a copy that is not whole, parts may be lacking.
fn extracts(directory: &Path, arguments: &[&str]) -> String {
    extracts_and_tells(directory, arguments).0
}

/// The same, with standard error.
fn extracts_and_tells(directory: &Path, arguments: &[&str]) -> (String, String) {
    let output = fleet(directory, &[&["extract"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lacks = output.status.code() == Some(3)
        && (said.contains(": no ") || said.contains(": it is "))
        && !said.contains("whole: ");
    assert!(output.status.success() || lacks, "{said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

/// A copy of which some pages do not decode: it opens, is complete, and its log may be whole.
#[test]
fn the_rows_of_the_whole_dump_stay_though_a_copy_is_damaged_in_places() {
    let (directory, _) = dumps();
    let directory = directory.path();
    succeeds(directory, &["extract", "whole", "--to", "alone"]);
    let alone = tables(directory, "alone");
    let whole = fs::read(directory.join("whole")).unwrap();
    let mut kept = 0;
    // Behind the bitmaps are descriptors and pages.
    let field = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let [block, sub_header, bitmaps] = [428, 432, 436].map(field);
    let start = block * (1 + sub_header + bitmaps);
    let width = (whole.len() - start).div_ceil(10);
    for at in (start..whole.len()).step_by(width) {
        let mut copy = whole.clone();
        let end = copy.len().min(at + width);
        copy[at..end].fill(0xa5);
        // The table `dumps` tells which it is.
        fs::write(directory.join("copy"), [&copy[..], &[0; 4096]].concat()).unwrap();
        for order in [["copy", "whole"], ["whole", "copy"]] {
            let to = format!("{at}-{}-first", order[0]);
            let mut is_found = false;
            for dump in order {
                let (said, errors) = extracts_and_tells(directory, &[dump, "--to", &to]);
                is_found |= errors.contains("it is damaged") || errors.contains(": no ");
                let json = rows(&directory.join(&to), "manifest").concat();
                kept += usize::from(json.contains("this one is damaged"));
                is_found |= json.contains("this one is damaged");
                assert_eq!(
                    said.contains("left tables of another dump"),
                    json.contains("of this crash stay"),
                    "{said}"
                );
            }
            let mut found = tables(directory, &to);
            if !is_found {
                // Nothing that is read of it is damaged, and it is larger.
                found.retain(|name, _| !name.contains("dumps/"));
            }
            assert!(found.iter().all(|(name, bytes)| alone.get(name) == Some(bytes)), "{to}");
            assert!(found.len() == alone.len() || !is_found, "{to}");
        }
        fs::write(directory.join("copy"), copy).unwrap();
        // After compact, too; and the whole one replaces what compact made of the copy.
        let to = format!("{at}-compact");
        extracts(directory, &["whole", "--to", &to]);
        succeeds(directory, &["compact", &to]);
        extracts(directory, &["copy", "--to", &to]);
        let compacted = tables(directory, &to);
        let to = format!("{at}-copy-compact");
        for dump in ["copy", "whole"] {
            extracts(directory, &[dump, "--to", &to]);
            succeeds(directory, &["compact", &to]);
        }
        assert!(tables(directory, &to) == compacted, "{to}");
    }
    assert!(kept > 0, "no copy was damaged where a table is read");
}

#[test]
fn the_manifest_leads_from_a_crash_to_its_dumps_and_counts_each_once() {
    let (directory, _) = dumps();
    let directory = directory.path();
    fs::write(directory.join("bad"), "no dump").unwrap();
    let image = machine(Era::V6_1, "other", &OOPS).build();
    for (at, part) in image.kdump().parts(2).into_iter().enumerate() {
        fs::write(directory.join(format!("part.{at}")), part).unwrap();
    }
    let manifest = || rows(&directory.join("tables"), "manifest");
    let row = |path: &str| {
        let path = format!("path: \"{}\"", directory.join(path).display());
        let found: Vec<String> = manifest().into_iter().filter(|row| row.contains(&path)).collect();
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        found.into_iter().next().unwrap()
    };
    common::fleet(directory, &["extract", "whole", "bad", "--to", "tables"]);
    succeeds(directory, &["extract", "--split", "part.0", "part.1", "--to", "tables"]);
    let id = rows(&directory.join("tables"), "dumps")[0].split_once("crash_id: ").unwrap().1[..34].to_owned();
    let size = fs::metadata(directory.join("whole")).unwrap().len();
    let whole = row("whole");
    assert!(manifest().iter().any(|row| row.contains(&id)));
    for part in [
        &format!("size_bytes: {size},"),
        "complete: true",
        "\"tasks\"",
        "error: null",
        "extractor: \"pagehaul-fleet ",
    ] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    assert!(row("bad").contains("neither an ELF vmcore") && row("bad").contains("crash_id: null"));
    assert!(row("part.0").contains("part.1"));
    // Again, by another name of the path, and after compact, for readers that know nothing of names of files.
    assert_eq!(manifest().len(), 3);
    succeeds(directory, &["compact", "tables"]);
    assert_eq!((files(&directory.join("tables/manifest")).len(), manifest().len()), (1, 3));
    succeeds(directory, &["extract", "./whole", "--to", "tables"]);
    assert_eq!((files(&directory.join("tables/manifest")).len(), manifest().len()), (1, 3));
    // A dump that is repaired is no longer a failed row, although its month is known now.
    fs::copy(directory.join("whole"), directory.join("bad")).unwrap();
    succeeds(directory, &["extract", "bad", "--to", "tables"]);
    assert!(row("bad").contains("error: null") && manifest().len() == 3);
}

#[test]
fn the_redacted_manifest_has_no_path_and_no_host() {
    let (directory, _) = dumps();
    let directory = directory.path();
    fs::write(directory.join("key"), "0123456789abcdef").unwrap();
    fs::create_dir(directory.join("ledger1")).unwrap();
    fs::write(directory.join("ledger1/bad"), "no dump").unwrap();
    fs::copy(directory.join("whole"), directory.join("ledger1/dump")).unwrap();
    let facts = common::facts(1, "6.12", "ledger1", 1_793_491_200, "tcp_ack");
    fs::write(directory.join("ledger1/facts.json"), facts).unwrap();
    let dumps = ["ledger1/bad", "ledger1/dump", "ledger1/facts.json", "ledger1/absent"];
    let arguments = [&["extract", "--to", "tables", "--redact", "key"], &dumps[..]].concat();
    common::fleet(directory, &arguments);
    let manifest = rows(&directory.join("tables"), "manifest");
    assert_eq!(manifest.len(), 4);
    assert!(manifest.iter().all(|row| row.contains("path: \"path-")), "{manifest:#?}");
    assert!(manifest.iter().any(|row| row.contains("host: \"host-")), "{manifest:#?}");
    assert!(manifest.iter().any(|row| row.contains("neither an ELF vmcore")), "{manifest:#?}");
    let text = manifest.concat();
    assert!(!text.contains("ledger1") && !text.contains(&directory.display().to_string()), "{text}");
    // The same path, the same row.
    common::fleet(directory, &arguments);
    assert_eq!(rows(&directory.join("tables"), "manifest").len(), 4);
}

/// What a server keeps back is no damage of the dump: the row fails, and the tables of the whole dump stay.
#[test]
fn a_server_that_refuses_midway_replaces_no_table() {
    let (directory, _) = dumps();
    let directory = directory.path();
    succeeds(directory, &["extract", "--to", "tables", "whole"]);
    let before = tables(directory, "tables");
    let whole = fs::read(directory.join("whole")).unwrap();
    for first in [2, 4, 8, 12] {
        let whole = whole.clone();
        let server = Server::start(move |request| match request.number < first {
            true => Response::range(request, &whole, "v1"),
            false => Response::status(403, ""),
        });
        let output = fleet(directory, &["extract", "--to", "tables", "-j", "1", &server.url("/whole")]);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if server.requests().len() > first {
            assert!(!output.status.success() && said.contains("403"), "{first}: {said}");
        }
        assert!(tables(directory, "tables") == before, "{first}: {said}");
    }
}

#[test]
fn facts_of_others_count_once_whatever_they_hold() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let facts = |id: &str, missing: &str| {
        format!(
            r#"{{"schema_version": 1, "extractor": "a test", "crash_id": "{id}", "id_weak": false, "crash_time": null,
            "host": null, "release": null, "version": null, "build_id": null, "arch": "x86_64", "cpus": 1, "memory_bytes": 0,
            "page_size": null, "crash": null, "missing": [{missing}], "log": []}}"#
        )
    };
    let id = "0123456789abcdef0123456789abcdef";
    let missing = r#"{"what": "log", "reason": "ä"}"#.replace('ä', &"ä".repeat(2000));
    fs::write(directory.join("a.json"), facts(id, &vec![missing; 2000].join(","))).unwrap();
    fs::write(directory.join("b.json"), facts(&id.to_uppercase(), "")).unwrap();
    succeeds(directory, &["extract", "a.json", "b.json", "--to", "tables"]);
    assert_eq!(rows(&directory.join("tables"), "dumps").len(), 1);
    assert_eq!(rows(&directory.join("tables"), "manifest").len(), 2);
}
