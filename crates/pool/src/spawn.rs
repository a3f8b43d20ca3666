use std::thread::{Builder, Scope};

/// Creates up to `count` threads called `name`. Returns how many there are: fewer where the system allows no more
/// (`pids.max`, `RLIMIT_NPROC`, memory).
pub fn spawn_up_to<'scope, F>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    count: usize,
    mut body: impl FnMut() -> F,
) -> usize
where
    F: FnOnce() + Send + 'scope,
{
    (0..count).take_while(|_| Builder::new().name(name.into()).spawn_scoped(scope, body()).is_ok()).count()
}
