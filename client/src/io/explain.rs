//! What this side can say of a failure beside its error: which limit a payload is above, and which
//! methods there are.

use bowline_protocol::{ErrorKind, Executed, Method, ReplicaId};

use super::client::Shared;
use super::reply::{Failure, words};

/// So many methods are named; who has more knows them better from elsewhere.
const MOST_LISTED: usize = 12;

/// Of a call, what is needed to explain its failure.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) method: Method,
    /// The request's payload, in bytes.
    pub(super) size: u32,
}

impl Shared {
    /// The failure, with words on what to do about it if this side has some.
    pub(super) fn explain(&self, shape: Shape, failure: Failure) -> Failure {
        let said_by = failure.outcome.and_then(|it| it.winner).map(|winner| winner.replica);
        // Where a reply was not taken for the call's last word, there is what it said.
        let is_sent = said_by.is_some()
            || failure.payload.is_some()
            || failure.error.executed != Executed::No;
        let told = match failure.error.kind {
            ErrorKind::PayloadTooLarge if !is_sent => self.why_not_sent(shape.size),
            ErrorKind::PayloadTooLarge => {
                let servers = words(failure.payload()).unwrap_or("the reply is larger");
                format!("{servers}; max_reply is {} here", self.config.max_reply)
            }
            ErrorKind::NoSuchMethod => self.which_there_are(shape.method, said_by),
            _ => return failure,
        };
        let payload = Some(self.shell.pool.copy(told.as_bytes()));
        Failure { payload, ..failure }
    }

    fn why_not_sent(&self, size: u32) -> String {
        let state = self.shell.state.borrow();
        let own = state.calls.config().max_payload;
        let why = match (size > own, state.calls.largest_request()) {
            (true, _) => format!(", and core.max_payload is {own} here"),
            (false, Some(most)) => format!(", and no replica takes more than {most}"),
            (false, None) => String::new(),
        };
        format!("the request has {size} bytes{why}")
    }

    /// At the replica that has not this one, as far as it has said and is connected.
    fn which_there_are(&self, method: Method, replica: Option<ReplicaId>) -> String {
        let state = self.shell.state.borrow();
        let line = replica.and_then(|it| state.lines.get(usize::from(it.0))?.as_ref());
        line.and_then(|line| line.methods.as_ref()).map_or_else(
            || format!("method {}", method.0),
            |methods| {
                let there = listed(methods.iter().map(|it| (it.number, it.name)));
                format!("method {}; {:?} has {there}", method.0, methods.service())
            },
        )
    }
}

/// Methods by number and name.
pub(super) fn listed<'a>(methods: impl Iterator<Item = (Method, &'a str)>) -> String {
    let named = |(number, name): (Method, &str)| format!("{} ({})", number.0, name.escape_debug());
    let mut all: Vec<String> = methods.map(named).collect();
    if let Some(more) = all.len().checked_sub(MOST_LISTED).filter(|&more| more > 0) {
        all.truncate(MOST_LISTED);
        all.push(format!("and {more} more"));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_methods_are_listed_as_are_read_and_their_names_are_escaped() {
        assert_eq!(
            listed([(Method(1), "read"), (Method(2), "a\x1b")].into_iter()),
            "1 (read), 2 (a\\u{1b})"
        );
        let many = listed((1..=14).map(|number| (Method(number), "x")));
        assert!(many.ends_with(", 12 (x), and 2 more"), "{many}");
        assert!(listed((1..=12).map(|number| (Method(number), "x"))).ends_with("12 (x)"));
    }
}
