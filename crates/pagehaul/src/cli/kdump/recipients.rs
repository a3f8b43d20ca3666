//! The file of those who can read what kdump writes on a machine.

use std::io::ErrorKind;
use std::path::Path;

use pagehaul_encryption::Recipients;
use pagehaul_kdump_setup::Root;
use pagehaul_makedumpfile::RECIPIENTS as FILE;

/// Counts the keys in a machine's file of recipients. Returns `None` if it does not exist, and the reason if it cannot be used.
pub(super) fn of_machine(root: &Root) -> Option<Result<usize, String>> {
    let text = match root.read(FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A link that leads nowhere below the root.
            let is_there = root.names("/etc/pagehaul").iter().any(|name| name == "recipients");
            return is_there.then(|| Err("it is a link to a file that does not exist".into()));
        }
        Err(error) => return Some(Err(format!("it cannot be read: {error}"))),
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    let parsed = Recipients::of_text(&text, Path::new(FILE));
    Some(parsed.map(|recipients| recipients.count()).map_err(|error| error.to_string()))
}
