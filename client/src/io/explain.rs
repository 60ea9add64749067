//! What this side can say of a failure beside its error: which limit a payload is above, and which
//! methods there are.

use bowline_protocol::{ErrorKind, Executed, Method};

use super::client::Shared;
use super::reply::{Failure, words};

/// So many methods are named; who has more knows them better from elsewhere.
const MOST_LISTED: usize = 12;

/// What a call asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) method: Method,
    /// The request's payload, in bytes.
    pub(super) size: u32,
}

impl Shared {
    /// The failure, with words on what to do about it if this side has some.
    pub(super) fn explain(&self, asked: Asked, failure: Failure) -> Failure {
        let told = match (failure.error.kind, failure.error.executed) {
            (ErrorKind::PayloadTooLarge, Executed::No) => self.why_not_sent(asked.size),
            (ErrorKind::PayloadTooLarge, _) => {
                let servers = words(failure.payload()).unwrap_or("the reply is larger");
                format!("{servers}; max_reply is {} here", self.config.max_reply)
            }
            (ErrorKind::NoSuchMethod, _) => self.which_there_are(asked.method),
            _ => return failure,
        };
        let payload = Some(self.shell.pool.copy(told.as_bytes()));
        Failure { payload, ..failure }
    }

    fn why_not_sent(&self, size: u32) -> String {
        let state = self.shell.state.borrow();
        let own = state.calls.config().max_payload;
        match size > own {
            true => format!("the request has {size} bytes, and core.max_payload is {own} here"),
            false => {
                let most = state.calls.largest_request();
                format!("the request has {size} bytes, and no replica takes more than {most}")
            }
        }
    }

    /// As far as a replica has said that is connected.
    fn which_there_are(&self, method: Method) -> String {
        let state = self.shell.state.borrow();
        let said = state.lines.iter().flatten().find_map(|line| line.methods.as_ref());
        said.map_or_else(
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
