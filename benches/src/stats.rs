//! What a run measured: recorded slice by slice, merged without averaging.

mod denial;
mod latency;
mod ratio;
mod slice;
mod summary;

pub use denial::{Denial, denials};
pub use latency::{Latencies, Quantile};
pub use ratio::{Spread, comparable, ratio_to_baseline};
pub use slice::{CallEnd, Counters, Ends, Slice};
pub use summary::{Rounds, Summary, Validity};
