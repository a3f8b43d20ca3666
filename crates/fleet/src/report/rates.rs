//! Crashes per machine-hour.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::exposure::{Exposure, Hosts, Machines};
use super::gather::{Crash, Row};
use super::group::Group;
use super::interval::{CONFIDENCE, Interval, chance, rate, ratio};

/// Hours that rates are given for.
const PER: f64 = 1_000.0;

/// Rates of a fleet.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Rates {
    pub(crate) machine_hours: f64,
    /// Crashes that count: not requested, in the period, of machines with machine-hours.
    pub(crate) crashes: u64,
    /// Seconds since 1970.
    pub(crate) since: Option<i64>,
    pub(crate) until: Option<i64>,
    /// All first, then by kernel, fleet, class, and their combinations; of each, those that crash more often than the rest first.
    pub(crate) groups: Vec<Rate>,
    /// Signatures with a higher rate in one group than in the rest, the most certain first.
    pub(crate) concentrated: Vec<Concentrated>,
    /// Crashes of machines without machine-hours, which do not count.
    pub(crate) without_hours: Vec<WithoutHours>,
    /// Crashes of hosts that are not in the file of hosts. They count in their kernel's rate, but in that of no fleet and class.
    pub(crate) unknown_hosts: BTreeMap<String, u64>,
    /// Those of them that count in no rate: what kernel they count with depends on the fleet or class, or has no machine-hours.
    pub(crate) unknown_hosts_not_counted: u64,
    /// Fleets and classes of the file of hosts without machine-hours, and those with machine-hours that no host has.
    pub(crate) unknown_groups: Vec<String>,
    /// Crashes that do not count because they are not in the period, or their time is unknown.
    pub(crate) outside_period: u64,
}

/// The rate of a group of machines.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Rate {
    pub(crate) by: By,
    pub(crate) name: String,
    pub(crate) crashes: u64,
    pub(crate) machine_hours: f64,
    /// Crashes per 1,000 machine-hours.
    pub(crate) rate: Interval,
    /// To the rate of all other machines; null if it cannot be known.
    pub(crate) ratio: Option<Interval>,
}

impl Rate {
    /// Whether the group crashes more often than the rest, by more than chance.
    pub(crate) fn is_higher(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio.low > 1.0)
    }
}

/// What machines are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    All,
    Kernel,
    Fleet,
    Class,
    /// Kernel, fleet and class together.
    Group,
}

impl By {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Kernel => "kernel",
            Self::Fleet => "fleet",
            Self::Class => "class",
            Self::Group => "group",
        }
    }

    /// The name of the group of machines that some are in.
    fn group(self, machines: &Machines) -> Option<String> {
        match self {
            Self::All => Some(String::new()),
            Self::Kernel => Some(machines.release.clone()),
            Self::Fleet => machines.fleet.clone(),
            Self::Class => machines.class.clone(),
            Self::Group => {
                let parts = [Some(&machines.release), machines.fleet.as_ref(), machines.class.as_ref()];
                let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
                (parts.len() > 1).then(|| parts.join(" / "))
            }
        }
    }
}

/// A signature that one group of machines has more often.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Concentrated {
    pub(crate) sig: String,
    pub(crate) bug: Option<String>,
    pub(crate) title: String,
    pub(crate) by: By,
    pub(crate) name: String,
    pub(crate) crashes: u64,
    pub(crate) elsewhere: u64,
    pub(crate) ratio: Interval,
    /// Probability of at least as many in the group, if all machines had one rate.
    pub(crate) p: f64,
}

/// Crashes of machines that have no machine-hours.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WithoutHours {
    #[serde(flatten)]
    pub(crate) machines: Machines,
    pub(crate) crashes: u64,
}

/// Counts the crashes of machines. `since` is in seconds since 1970. Requested ones do not count.
pub(crate) fn rates(
    crashes: &[Crash],
    groups: &[Group],
    exposure: &Exposure,
    hosts: Option<&Hosts>,
    since: Option<i64>,
) -> Rates {
    let (first, until) = exposure.days.map_or((None, None), |(first, until)| (Some(first), Some(until)));
    let since = since.max(first);
    let mut rates = Rates { since, until, machine_hours: exposure.hours.values().sum(), ..Rates::default() };
    let mut counted: Vec<(&Crash, Machines)> = Vec::new();
    let mut without: BTreeMap<Machines, u64> = BTreeMap::new();
    let mut known: HashMap<(Option<&str>, Option<&str>), Option<Machines>> = HashMap::new();
    for crash in crashes.iter().filter(|crash| !crash.is_requested()) {
        let is_inside =
            |time: i64| since.is_none_or(|since| time >= since) && until.is_none_or(|until| time < until);
        if (since.is_some() || until.is_some()) && !crash.time.is_some_and(is_inside) {
            rates.outside_period += 1;
            continue;
        }
        let key = (crash.release.as_deref(), crash.host.as_deref());
        let machines = known.entry(key).or_insert_with(|| machines(crash, exposure, hosts));
        let Some(machines) = machines.clone() else {
            *rates.unknown_hosts.entry(crash.host.clone().unwrap_or_default()).or_default() += 1;
            match exposure.kernel(crash.release.as_deref().unwrap_or_default()) {
                Some(release) => {
                    counted.push((crash, Machines { release: release.to_owned(), ..Machines::default() }));
                }
                None => rates.unknown_hosts_not_counted += 1,
            }
            continue;
        };
        match exposure.hours.get(&machines) {
            Some(hours) if *hours > 0.0 => counted.push((crash, machines)),
            _ => *without.entry(machines).or_default() += 1,
        }
    }
    rates.without_hours =
        without.into_iter().map(|(machines, crashes)| WithoutHours { machines, crashes }).collect();
    rates.crashes = counted.len() as u64;
    let mut hours: BTreeMap<(By, String), (f64, u64)> = BTreeMap::new();
    const ALL: [By; 5] = [By::All, By::Kernel, By::Fleet, By::Class, By::Group];
    for (machines, time) in &exposure.hours {
        for by in ALL {
            if let Some(name) = by.group(machines) {
                hours.entry((by, name)).or_default().0 += time;
            }
        }
    }
    let mut totals: BTreeMap<By, u64> = BTreeMap::new();
    for (_, machines) in &counted {
        for by in ALL {
            if let Some(group) = by.group(machines).and_then(|name| hours.get_mut(&(by, name))) {
                group.1 += 1;
                *totals.entry(by).or_default() += 1;
            }
        }
    }
    rates.groups = hours
        .iter()
        .filter(|(_, (time, _))| *time > 0.0)
        .map(|((by, name), (time, crashes))| {
            // A crash of an unknown fleet is not one of the other fleets.
            let total = totals.get(by).copied().unwrap_or(0);
            let rest = (total - crashes, rates.machine_hours - time);
            Rate {
                by: *by,
                name: name.clone(),
                crashes: *crashes,
                machine_hours: *time,
                rate: rate(*crashes, time / PER, CONFIDENCE),
                ratio: ratio(*crashes, *time, rest.0, rest.1, CONFIDENCE).filter(|_| *by != By::All),
            }
        })
        .collect();
    rates.groups.sort_by(|a, b| {
        a.by.cmp(&b.by).then(b.is_higher().cmp(&a.is_higher())).then(b.rate.low.total_cmp(&a.rate.low))
    });
    rates.concentrated = concentrated(&counted, groups, &hours, rates.machine_hours);
    if let Some(hosts) = hosts {
        rates.unknown_groups = unknown_groups(exposure, hosts);
    }
    rates
}

/// The machines that a crash is of. `None` if its host is unknown and counts.
fn machines(crash: &Crash, exposure: &Exposure, hosts: Option<&Hosts>) -> Option<Machines> {
    let release = crash.release.as_deref().unwrap_or_default();
    if !exposure.has_fleet && !exposure.has_class {
        return Some(exposure.machines(release, None, None));
    }
    let place = hosts?.place(crash.host.as_deref()?)?;
    // A place without a fleet is not one of all fleets.
    let fleet = exposure.has_fleet.then(|| place.fleet.as_deref().unwrap_or_default());
    let class = exposure.has_class.then(|| place.class.as_deref().unwrap_or_default());
    Some(exposure.machines(release, fleet, class))
}

/// Signatures that a group has more often than the rest. The more pairs there are, the more certain each has to be (Bonferroni): of all
/// that are found by chance, one report of twenty has one.
fn concentrated(
    counted: &[(&Crash, Machines)],
    groups: &[Group],
    hours: &BTreeMap<(By, String), (f64, u64)>,
    all_hours: f64,
) -> Vec<Concentrated> {
    let mut totals: HashMap<(Row<'_>, By), u64> = HashMap::new();
    let mut pairs: BTreeMap<(Row<'_>, By, String), u64> = BTreeMap::new();
    for (crash, machines) in counted {
        let Some(row) = crash.row() else { continue };
        for by in [By::Kernel, By::Fleet, By::Class] {
            if let Some(name) = by.group(machines) {
                *pairs.entry((row, by, name)).or_default() += 1;
                *totals.entry((row, by)).or_default() += 1;
            }
        }
    }
    let known: HashMap<Row<'_>, &Group> = groups.iter().map(|group| (group.row(), group)).collect();
    let level = (1.0 - CONFIDENCE) / pairs.len().max(1) as f64;
    let mut found: Vec<Concentrated> = pairs
        .into_iter()
        .filter_map(|((row, by, name), crashes)| {
            let time = hours.get(&(by, name.clone()))?.0;
            let elsewhere = totals.get(&(row, by))? - crashes;
            let p = chance(crashes, time, elsewhere, all_hours - time);
            if p >= level {
                return None;
            }
            let ratio = ratio(crashes, time, elsewhere, all_hours - time, CONFIDENCE)?;
            let group = known.get(&row)?;
            let bug = group.bug.as_ref().map(|bug| bug.id.clone());
            let (sig, title) = (group.sig.clone(), group.title.clone());
            Some(Concentrated { sig, bug, title, by, name, crashes, elsewhere, ratio, p })
        })
        .collect();
    found.sort_by(|a, b| {
        a.p.total_cmp(&b.p).then_with(|| (&a.sig, a.by, &a.name).cmp(&(&b.sig, b.by, &b.name)))
    });
    found
}

fn unknown_groups(exposure: &Exposure, hosts: &Hosts) -> Vec<String> {
    let places = hosts.places();
    let mut unknown = Vec::new();
    for (has, what, of_hours, of_hosts) in [
        (
            exposure.has_fleet,
            "fleet",
            exposure.hours.keys().filter_map(|machines| machines.fleet.as_deref()).collect::<BTreeSet<_>>(),
            places.iter().filter_map(|place| place.fleet.as_deref()).collect::<BTreeSet<_>>(),
        ),
        (
            exposure.has_class,
            "class",
            exposure.hours.keys().filter_map(|machines| machines.class.as_deref()).collect(),
            places.iter().filter_map(|place| place.class.as_deref()).collect(),
        ),
    ] {
        if has {
            unknown.extend(
                of_hosts
                    .difference(&of_hours)
                    .map(|name| format!("{what} {name}: hosts, but no machine-hours")),
            );
            unknown.extend(
                of_hours
                    .difference(&of_hosts)
                    .map(|name| format!("{what} {name}: machine-hours, but no hosts")),
            );
        }
    }
    unknown
}
