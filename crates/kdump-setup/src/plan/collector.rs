//! The options of makedumpfile that a plan sets: codec and dump level. All others stay.

/// makedumpfile's options with another codec and level. `None` if the program is another one, which takes other options.
pub(super) fn planned(collector: &[String], codec: Option<&str>, level: u8) -> Option<Vec<String>> {
    let (program, options) = collector.split_first()?;
    if !program.rsplit('/').next()?.eq("makedumpfile") {
        return None;
    }
    let mut words = vec![program.clone()];
    let mut options = options.iter();
    let is_elf = options.clone().any(|word| word == "-E");
    let (mut kept_codec, mut kept_level) = (None, None);
    while let Some(word) = options.next() {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            words.push(word.clone());
            continue;
        };
        match letters.split_once('d') {
            // `-d 31`, `-d31`, and `-ld 31`: the codec before it is replaced as well.
            Some((before, value)) if before.chars().all(|letter| "clpzF".contains(letter)) => {
                kept_level = if value.is_empty() { options.next().cloned() } else { Some(value.to_owned()) };
                kept_codec = before.chars().rfind(|letter| "clpz".contains(*letter)).or(kept_codec);
                if before.contains('F') {
                    words.push("-F".into());
                }
            }
            _ if letters.len() == 1 && "clpz".contains(letters) => kept_codec = letters.chars().next(),
            _ => words.push(word.clone()),
        }
    }
    let kept_codec = kept_codec.map(|letter| format!("-{letter}"));
    if kept_level == Some(level.to_string()) && (is_elf || codec.is_none() || codec == kept_codec.as_deref())
    {
        return Some(collector.to_vec());
    }
    let codec = codec.map(str::to_owned).or(kept_codec);
    words.extend(codec.filter(|_| !is_elf));
    words.extend(["-d".to_owned(), level.to_string()]);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_and_level_are_replaced() {
        let planned = |line: &str, codec| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            planned(&words, codec, 31).map(|words| words.join(" "))
        };
        for (line, expected) in [
            ("makedumpfile -F -c -d 31", "makedumpfile -F -z -d 31"),
            ("makedumpfile -l --message-level 7 -d 17", "makedumpfile --message-level 7 -z -d 31"),
            ("makedumpfile -z -d 31 --message-level 7", "makedumpfile -z -d 31 --message-level 7"),
            ("makedumpfile -Fld31 --num-threads 4", "makedumpfile -F --num-threads 4 -z -d 31"),
            ("/sbin/makedumpfile -E -d 31", "/sbin/makedumpfile -E -d 31"),
        ] {
            assert_eq!(planned(line, Some("-z")).as_deref(), Some(expected));
            assert_eq!(planned(expected, Some("-z")).as_deref(), Some(expected), "not idempotent");
        }
        assert_eq!(planned("makedumpfile -F -l -d 1", None).as_deref(), Some("makedumpfile -F -l -d 31"));
        assert_eq!(planned("cp --sparse=always", Some("-z")), None);
    }
}
