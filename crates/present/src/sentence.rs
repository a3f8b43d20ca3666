use crate::printable;

/// Formats an error and its causes (`chain()` of anyhow), each once: many messages end with that of their cause.
pub fn sentence<C: ToString>(causes: impl IntoIterator<Item = C>) -> String {
    let mut sentence = String::new();
    for cause in causes.into_iter().map(|cause| cause.to_string()) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.ends_with(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    printable(&sentence).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once() {
        let sentence = |causes: &[&str]| sentence(causes.iter().copied());
        assert_eq!(sentence(&["cannot open dump: it is gone", "it is gone"]), "cannot open dump: it is gone");
        assert_eq!(
            sentence(&["nothing to read", "no dump", "it is gone"]),
            "nothing to read: no dump: it is gone"
        );
        assert_eq!(sentence(&["a\nb"]), "a\\nb");
        assert_eq!(sentence(&[]), "");
    }
}
