//! Titles that differ where rows differ.

use std::collections::{BTreeMap, HashMap};

use super::group::Group;

/// Digits of a signature in a title.
const DIGITS: usize = 8;

/// Adds callers to equal titles until they differ. What has the same callers, too, gets its bug or signature.
pub(super) fn distinguish(groups: &mut [Group]) {
    let mut equal: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        equal.entry(group.title.clone()).or_default().push(at);
    }
    for (title, members) in
        equal.into_iter().filter(|(title, members)| !title.is_empty() && members.len() > 1)
    {
        let titles: Vec<Vec<String>> = members
            .iter()
            .filter_map(|at| groups.get(*at))
            .map(|group| longer(&title, &group.frames))
            .collect();
        // How many groups have each title, by the number of callers.
        let longest = titles.iter().map(Vec::len).max().unwrap_or(0);
        let counts: Vec<HashMap<&String, usize>> = (0..longest)
            .map(|length| {
                let mut counts = HashMap::new();
                for title in titles.iter().filter_map(|titles| titles.get(length).or(titles.last())) {
                    *counts.entry(title).or_default() += 1;
                }
                counts
            })
            .collect();
        for (own, at) in titles.iter().zip(members) {
            let found = own.iter().zip(&counts).find(|(title, counts)| counts.get(title) == Some(&1));
            let Some(group) = groups.get_mut(at) else { continue };
            group.title = match (found, &group.bug) {
                (Some((title, _)), None) => title.clone(),
                (_, Some(bug)) => format!("{title} ({})", bug.id),
                (None, None) => format!("{title} ({})", group.sig.get(..DIGITS).unwrap_or(&group.sig)),
            };
        }
    }
}

/// A title with no, one, two … callers.
fn longer(title: &str, frames: &[String]) -> Vec<String> {
    let mut titles = vec![title.to_owned()];
    for caller in frames.iter().skip(1) {
        titles.push(format!("{} < {caller}", titles.last().map_or("", String::as_str)));
    }
    titles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::group::KnownBug;

    fn group(title: &str, frames: &str, sig: &str) -> Group {
        let frames = frames.split(' ').map(str::to_owned).collect();
        Group { title: title.to_owned(), frames, sig: sig.to_owned(), ..Group::default() }
    }

    #[test]
    fn equal_titles_get_callers_until_they_differ() {
        let mut groups = [
            group("bug in f", "f g h", "1111111111111111"),
            group("bug in f", "f g i", "2222222222222222"),
            group("bug in f", "f k", "3333333333333333"),
            group("bug in f", "f", "4444444444444444"),
            group("bug in e", "e", "5555555555555555"),
            group("warn in w", "w x", "6666666666666666"),
            group("warn in w", "w x", "7777777777777777"),
            group("", "", "8888888888888888"),
            group("", "", "9999999999999999"),
        ];
        groups[6].bug = Some(KnownBug { id: "B-1".to_owned(), ..KnownBug::default() });
        distinguish(&mut groups);
        let expected = [
            "bug in f < g < h",
            "bug in f < g < i",
            "bug in f < k",
            "bug in f (44444444)",
            "bug in e",
            "warn in w (66666666)",
            "warn in w (B-1)",
            "",
            "",
        ];
        assert_eq!(groups.each_ref().map(|group| group.title.as_str()), expected);
    }
}
