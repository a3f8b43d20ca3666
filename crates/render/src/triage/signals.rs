//! Signals that wait.

use pagehaul_inspect::Signals;
use pagehaul_present::Table;

use super::lines::{Lines as _, known, whys};

pub(super) fn signals(found: &Signals, out: &mut String) {
    put!(out, "\nTasks for which signals wait: {}", known(found.all.len(), &found.broken));
    let heading =
        ["task", "state", "sent to the thread", "sent to the process", "of these blocked", "task_struct"];
    let mut table = Table::new(heading).left(0..5);
    table.rows(found.all.iter().map(|task| {
        [
            task.task.clone(),
            task.state.to_string(),
            task.thread.join(" "),
            task.process.join(" "),
            task.blocked.join(" "),
            task.address.to_string(),
        ]
    }));
    if !found.all.is_empty() {
        out.put_table(&table);
    }
    whys(&found.broken, out);
}
