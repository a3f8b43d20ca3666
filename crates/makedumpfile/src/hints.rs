//! What errors of the libraries advise, in the options of makedumpfile: it has not those of pagehaul's commands.

/// What they advise, and what to advise instead.
const INSTEAD: [(&str, &str); 4] = [
    ("replace it with --force", "replace it with -f"),
    (
        "of a raw image of memory, --layout says where its bytes belong",
        "of a raw image of memory, `pagehaul convert --layout` makes a dump",
    ),
    ("use `-` as the output to write", "use -F to write"),
    ("by --identity or PAGEHAUL_IDENTITY", "by PAGEHAUL_IDENTITY"),
];

/// Returns the sentence with advice that can be followed.
pub(crate) fn with_own_options(sentence: String) -> String {
    INSTEAD.iter().fold(sentence, |sentence, (advice, instead)| sentence.replace(advice, instead))
}
