//! What shells and the runtime may get wrong, which only run on the simulated driver.

use super::{Mutation, mutation};

const SENDING: &str = "runtime/src/net/sending.rs";
const RECEIVING: &str = "runtime/src/net/receiving.rs";
const CONNECTION: &str = "server/src/io/connection.rs";

pub(super) const ALL: &[Mutation] = &[
    mutation(
        "the rest of a short send is lost",
        SENDING,
        "        batch.taken(taken);",
        "        if taken > 0 {\n            batch.taken(batch.queued());\n        }",
    ),
    mutation(
        "who found no buffer is not asked to receive again",
        RECEIVING,
        "                self.core().parked.borrow_mut().push_back(self.clone());",
        "",
    ),
    mutation(
        "what arrives for a connection that closes keeps its buffer",
        RECEIVING,
        "            false => buffers.release(part),",
        "            false => {}",
    ),
    mutation(
        "the end of a connection leaves its copies where they are",
        CONNECTION,
        "            shell.on_closed(conn);",
        "            let _ = conn;",
    ),
];
