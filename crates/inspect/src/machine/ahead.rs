//! Reading ahead of what a dump on a server is asked for.

use std::thread;

use super::Machine;

/// Part of what is read later.
pub type Part<'a> = &'a (dyn Fn(&Machine<'_>) + Sync);

/// Runs parts of what is read later at the same time, and forgets what they find: the memory that they need is here then. Does nothing
/// unless the memory is on a server.
pub fn together(machine: &Machine<'_>, parts: &[Part<'_>]) {
    thread::scope(|scope| {
        for part in parts {
            let Some(memory) = machine.memory().another() else { return };
            let machine = machine.for_thread();
            // What no thread reads ahead is read later.
            let _ = thread::Builder::new().spawn_scoped(scope, move || part(&machine.with_memory(&*memory)));
        }
    });
}
