//! What stands against a second copy.

use bowline_client::core::Denied;

/// Why a second copy was not sent. (That hedging had switched itself off is told apart from these.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Denial {
    /// Its name in figures: as the client's own counters have it.
    pub name: &'static str,
    /// What is told of such copies.
    pub words: &'static str,
}

/// How many copies were denied for each of the reasons that there were.
pub fn denials(denied: &Denied) -> impl Iterator<Item = (Denial, u64)> {
    let all = [
        ("no_token", "found the budget spent", denied.no_token + denied.method_no_token),
        (
            "outstanding",
            "found as many extra copies on their way as may be",
            denied.outstanding + denied.method_outstanding,
        ),
        ("no_candidate", "found no other replica", denied.no_candidate),
        ("too_late", "had too little time left", denied.too_late),
        ("no_delay", "had too few samples to say what is slow", denied.no_delay),
        ("attempts", "were one more than a call may have", denied.attempts),
        ("too_large", "were too large", denied.too_large),
        ("not_idempotent", "were of calls that must not run twice", denied.not_idempotent),
        ("not_allowed", "were of a method that allows none", denied.not_allowed),
        ("not_shared", "had a key that no other replica knows", denied.not_shared),
        ("from_extra", "were of calls that an extra copy had made", denied.from_extra),
        ("killed", "met the switch that forbids all", denied.killed),
    ];
    let told = all.into_iter().filter(|(_, _, copies)| *copies > 0);
    told.map(|(name, words, copies)| (Denial { name, words }, copies))
}
