//! How the machine died, what is to blame, and what else is wrong.

pub(crate) mod cause;
pub(crate) mod death;
pub(crate) mod next;
pub(crate) mod verdict;
