/// How a task ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Information was printed.
    Printed,
    /// The output has everything.
    Complete,
    /// The output is marked incomplete.
    Incomplete,
}
