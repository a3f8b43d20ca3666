//! Memory cgroups of synthetic machines: generations of their pages, and swap.

mod common;

use common::balances;
use pagehaul_machine::PageCount;
use pagehaul_owners::{Balance, Generation, References};
use pagehaul_synth::{Cgroup, Cgroups, Era, Inside, Machine};

fn of(cgroups: Cgroups, counters: [u64; 4]) -> Balance {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    let mut machine = Machine::new(Era::V6_12);
    let inside = Inside { clock: 7200, free: 8, counters, cgroups: Some(cgroups), ..Inside::default() };
    machine.inside(0x4000, &inside);
    machine.buddy(0x2008, 3);
    machine.build().elf().write(&path).unwrap();
    let [found] = balances(&path, [(1, References::Never)]).unwrap();
    found
}

fn groups() -> Vec<Cgroup> {
    let root = Cgroup {
        generations: true,
        max_seq: 3,
        ages: [7000; 4],
        pages: vec![(0, 1, 0, 4), (3, 0, 1, 30)],
        ..Cgroup::default()
    };
    let web = Cgroup {
        name: "web",
        usage: 700,
        swap: 20,
        generations: true,
        max_seq: 9,
        min_seq: [6, 7],
        // Generations 8, 9, 6 and 7.
        ages: [600, 3, 4000, 1800],
        // Pages that were moved to the youngest are not yet in its number.
        pages: vec![(2, 0, 0, 500), (3, 1, 0, 100), (3, 1, 1, 11), (1, 0, 0, 40), (1, 1, 0, -5)],
        ..Cgroup::default()
    };
    let inner = Cgroup { name: "inner", parent: 1, usage: 100, swap: 5, ..web.clone() };
    vec![root, web, Cgroup { pages: vec![(0, 0, 0, 7)], ..inner }]
}

fn generation(seq: u64, seconds: u64, anonymous: u64, file: u64) -> Generation {
    Generation {
        seq,
        age_ms: Some(1000 * seconds),
        anonymous: PageCount::new(anonymous),
        file: PageCount::new(file),
    }
}

#[test]
fn pages_have_the_age_of_their_generation() {
    // What the kernel counts: 34 pages of the root, 646 and 7 of the others.
    let found = of(Cgroups { old: false, disabled: false, groups: groups() }, [577, 110, 0, 0]);
    let generations = found.generations.as_ref().unwrap();
    let lists: Vec<_> = generations.largest.iter().map(|of| (of.path.as_str(), of.node)).collect();
    assert_eq!(lists, [("/web", 0), ("/", 0), ("/web/inner", 0)]);
    assert_eq!(generations.count, 3);
    assert_eq!(
        generations.largest[0].generations,
        [
            generation(6, 4000, 500, 0),
            generation(7, 1800, 0, 111),
            generation(8, 600, 0, 0),
            generation(9, 3, 40, 0)
        ]
    );
    let ages: Vec<_> =
        generations.ages.iter().map(|age| (age.up_to_ms, age.anonymous.get(), age.file.get())).collect();
    assert_eq!(
        ages,
        [(Some(10_000), 40, 0), (Some(600_000), 7, 0), (Some(3_600_000), 0, 111), (Some(86_400_000), 530, 4)]
    );
    assert_eq!(generations.age_not_known.get(), 0);
    let identity = found.identities.iter().find(|it| it.what == "generations of the LRU").unwrap();
    assert_eq!((identity.pages, identity.counted), (687, 687));
    assert!(!found.missing.iter().any(|why| why.contains("generations")), "{:?}", found.missing);
}

#[test]
fn kernels_without_generations_have_none() {
    let off = groups().into_iter().map(|group| Cgroup { generations: false, ..group }).collect();
    let found = of(Cgroups { old: false, disabled: false, groups: off }, [3, 0, 0, 0]);
    assert_eq!(found.generations, None);
    assert!(!found.identities.iter().any(|it| it.what == "generations of the LRU"));
    assert!(serde_json::to_value(&found).unwrap().get("generations").is_none());
}

#[test]
fn without_memory_cgroups_pages_are_on_lists_of_the_node() {
    let groups = groups().into_iter().take(1).collect();
    let found = of(Cgroups { disabled: true, groups, ..Cgroups::default() }, [30, 4, 0, 0]);
    let generations = found.generations.unwrap();
    let lists: Vec<_> = generations.largest.iter().map(|of| (of.path.as_str(), of.node)).collect();
    assert_eq!((lists, generations.count), (vec![("/", 0)], 1));
    let identity = found.identities.iter().find(|it| it.what == "generations of the LRU").unwrap();
    assert_eq!((identity.pages, identity.counted), (34, 34));
}

#[test]
fn lists_that_no_kernel_has_are_left_out() {
    let changes: [fn(&mut Cgroup); 4] = [
        |group| group.max_seq = 2,
        |group| group.min_seq[1] = 3,
        |group| group.max_seq = u64::MAX,
        |group| group.pages.push((0, 0, 0, 1 << 40)),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut groups = groups();
        change(&mut groups[1]);
        let found = of(Cgroups { old: false, disabled: false, groups }, [3, 0, 0, 0]);
        let paths: Vec<_> =
            found.generations.iter().flat_map(|it| &it.largest).map(|of| of.path.as_str()).collect();
        assert_eq!(paths, ["/", "/web/inner"], "{at}");
        let said = |why: &String| {
            why.starts_with("generations of the LRU: those of the memory cgroup /web on node 0: ")
        };
        assert!(found.missing.iter().any(said), "{at}: {:?}", found.missing);
    }
    let mut future = groups();
    // jiffies when the kernel starts are 300 s before they overflow 32 bits.
    future[1].ages = [8000; 4];
    let found =
        of(Cgroups { old: false, disabled: false, groups: future }, [3, 0, 0, 0]).generations.unwrap();
    assert_eq!(found.age_not_known.get(), 651);
    assert_eq!(found.largest[0].generations[0].age_ms, None);
}

#[test]
fn of_many_cgroups_those_with_the_most_pages_are_reported() {
    let mut groups = groups();
    groups.truncate(1);
    groups.extend((0..21_000).map(|at| Cgroup {
        name: "some",
        generations: true,
        max_seq: 3,
        ages: [100; 4],
        pages: vec![(0, 0, 0, 1 + at % 3)],
        ..Cgroup::default()
    }));
    let found = of(Cgroups { old: false, disabled: false, groups }, [3, 0, 0, 0]);
    let generations = found.generations.unwrap();
    assert_eq!((generations.largest.len(), generations.count), (10_000, 21_001));
    let pages =
        |at: usize| generations.largest[at].generations.iter().map(Generation::pages).sum::<PageCount>();
    assert_eq!([0, 1, 7000, 7001, 9999].map(|at| pages(at).get()), [34, 3, 3, 2, 2]);
    // All count.
    let ages: PageCount = generations.ages.iter().map(|age| age.anonymous + age.file).sum();
    assert_eq!(ages.get(), 34 + 7000 * (1 + 2 + 3));
}

#[test]
fn swap_of_hierarchies_of_version_1_is_without_memory() {
    let swap = |old, counters: [u64; 3]| {
        let mut groups = groups();
        for (group, swap) in groups.iter_mut().zip(counters) {
            group.swap = swap;
        }
        let found = of(Cgroups { old, disabled: false, groups }, [3, 0, 0, 0]);
        let listed = found.cgroups.largest.iter();
        listed
            .map(|group| (group.path.clone(), group.swap.map_or(0, |pages| pages.get())))
            .collect::<Vec<_>>()
    };
    let expected = [("/".into(), 0), ("/web".into(), 20), ("/web/inner".into(), 5)];
    assert_eq!(swap(false, [0, 20, 5]), expected);
    assert_eq!(swap(true, [0, 720, 105]), expected);
    // Without accounting of swap (`swapaccount=0`) the counter stays 0.
    assert_eq!(swap(true, [0; 3]).iter().map(|(_, pages)| *pages).sum::<u64>(), 0);
}

#[test]
fn usage_beyond_the_memory_of_the_machine_is_no_figure() {
    let with = |usage: [u64; 3]| {
        let mut groups = groups();
        for (group, usage) in groups.iter_mut().zip(usage) {
            group.usage = usage;
        }
        of(Cgroups { old: false, disabled: false, groups }, [3, 0, 0, 0])
    };
    let usage = |found: &Balance| {
        let listed = found.cgroups.largest.iter();
        listed.map(|group| (group.path.clone(), group.usage.map(PageCount::get))).collect::<Vec<_>>()
    };
    let said = |found: &Balance, what: &str| found.missing.iter().any(|why| why.contains(what));
    let found = with([800, u64::MAX - 5, 100]);
    assert_eq!(
        usage(&found),
        [("/".into(), Some(800)), ("/web".into(), None), ("/web/inner".into(), Some(100))]
    );
    let sentence =
        "the usage of the memory cgroup /web cannot be right: it is more pages than the machine has";
    assert!(said(&found, sentence) && !found.is_whole, "{:?}", found.missing);
    let value = serde_json::to_value(&found.cgroups.largest[1]).unwrap();
    assert!(value.get("usage").is_none() && value["path"] == "/web");
    let both = with([800, 1 << 40, 1 << 30]);
    assert!(said(&both, "(and 1 more such counters)"), "{:?}", both.missing);
    assert!(!said(&with([800, 700, 100]), "cannot be right"));
}
