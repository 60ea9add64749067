//! A server's numbers as an OpenMetrics page.
//!
//! A core hands over what it has counted, and swaps its histograms for empty ones: a few moves of
//! pointers. All that takes longer (adding up, formatting, a slow watcher) happens on the page's own
//! thread.

use std::boxed::Box;
use std::fmt::Error;
use std::io;
use std::net::SocketAddr;
use std::string::{String, ToString};
use std::vec::Vec;

use bowline_protocol::{Label, Method};
use bowline_runtime::exposition::{Exposition, Visits};
use hdrhistogram::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::once::LedgerStats;
use super::server::{Collected, Control};
use super::stats::IoStats;
use super::tally::Row;
use crate::core::{Histograms, Stats};

/// Upper bounds of the buckets of times, in seconds: 1, 2 and 5 of each decade from ten microseconds to
/// ten seconds.
const BOUNDS: [f64; 19] = [
    10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2,
    0.5, 1.0, 2.0, 5.0, 10.0,
];

impl Control {
    /// Serves the server's numbers at `/metrics` of this address, in the OpenMetrics text format,
    /// until the value is dropped. See [`Control::page`].
    ///
    /// # Errors
    ///
    /// If the address or a thread can't be had.
    pub fn expose(&self, address: SocketAddr) -> io::Result<Exposition> {
        let control = self.clone();
        Exposition::serve(address, move |visits| control.page_for(Some(visits)))
    }

    /// The server's numbers since it started, as OpenMetrics has them. It blocks until all cores have
    /// told theirs, and so is not for the server's own threads.
    pub fn page(&self) -> String {
        self.page_for(None)
    }

    fn page_for(&self, visits: Option<Visits>) -> String {
        let labels = [
            ("replica", self.replica().to_string()),
            ("zone", self.zone().to_string()),
            ("service", self.service().name.to_string()),
        ];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(label, value)| (label.into(), value.into()));
        let mut registry = Registry::with_prefix_and_labels("bowline", labels);
        let names = self.service().methods.iter().map(|info| (info.number, info.name)).collect();
        let page = Page { cores: self.collect(), names, ledger: self.ledger(), visits };
        registry.register_collector(Box::new(page));
        let mut text = String::new();
        match text::encode(&mut text, &registry) {
            Ok(()) => text,
            Err(Error) => String::from("# EOF\n"),
        }
    }
}

#[derive(Debug)]
struct Page {
    cores: Vec<Collected>,
    /// The methods' names.
    names: Vec<(Method, &'static str)>,
    /// What happened in the store of results, if there is one.
    ledger: Option<LedgerStats>,
    /// Who has come for the page, if it is served.
    visits: Option<Visits>,
}

type Labels<'a> = [(&'a str, String)];

impl Page {
    fn name(&self, method: Method) -> String {
        let known = self.names.iter().find(|(number, _)| *number == method);
        known.map_or_else(|| method.0.to_string(), |(_, name)| name.to_string())
    }

    /// The counters of copies, apart by what their names begin with.
    fn copies(&self, to: &mut Encoder<'_>, stats: &Stats) -> Result<(), Error> {
        to.gauge("copies_queued", "Copies in the queue", stats.queued)?;
        to.gauge("copies_running", "Copies that hold a slot", stats.running)?;
        to.gauge("copies_held", "Of those queued: their clients have to read first", stats.held)?;
        to.gauge("copies_parked", "Copies that wait for the result of their key", stats.parked)?;
        to.gauge("keys", "Results that are remembered by key", stats.keys)?;
        to.gauge("key_bytes", "Bytes of results that are remembered by key", stats.key_bytes)?;
        to.counter("requests_accepted", "Copies that were taken on", stats.accepted)?;
        to.counter("copies_started", "Handlers that were started", stats.started)?;
        to.counter(
            "double_starts",
            "Copies that ran when their twin started",
            stats.double_starts,
        )?;
        let counters: Vec<(&str, u64)> = Stats::NAMES.into_iter().zip(stats.values()).collect();
        let starting = |prefix: &str| -> Vec<(String, u64)> {
            let of =
                |(name, value): &(&str, u64)| Some((name.strip_prefix(prefix)?.into(), *value));
            counters.iter().filter_map(of).collect()
        };
        // How copies ended: each counter but those that say more of one of the others.
        let ways = ["replied", "withdrawn_", "aborted_", "shed_", "dropped_"];
        let is_end = |name: &str| {
            !name.starts_with("replied_") && ways.iter().any(|way| name.starts_with(way))
        };
        let ends = counters.iter().filter(|(name, _)| is_end(name));
        let ends = ends.map(|(name, value)| (name.to_string(), *value)).collect();
        to.counters("copies_ended", "Copies, by how they ended", "end", ends)?;
        for (name, help, label, prefix) in [
            ("replies", "Answers, by what is special of them", "special", "replied_"),
            ("requests_rejected", "Requests that were refused on arrival", "reason", "rejected_"),
            ("shedding_dark", "What would have been shed", "reason", "dark_"),
            ("cancels", "Cancels that were sent, that came, and what they did", "what", "cancels_"),
            ("tombstones", "Tombstones, by what became of them", "what", "tombstones_"),
            ("keyed", "Keys, by what became of them", "what", "keys_"),
        ] {
            to.counters(name, help, label, starting(prefix))?;
        }
        to.counter("overloads", "Times that the newest began to be served first", stats.overloads)?;
        to.counter("holds", "Times that a client's copies were held back", stats.holds)?;
        to.counter("holds_of_all", "Times that all copies were held back", stats.holds_of_all)?;
        to.counter("starts_told", "Starts that clients relay", stats.starts_told)
    }

    fn connections(&self, to: &mut Encoder<'_>, stats: &IoStats) -> Result<(), Error> {
        let counters = IoStats::NAMES.into_iter().zip(stats.values());
        let counters = counters.map(|(name, value)| (name.to_string(), value)).collect();
        to.counters("connections", "What happened on connections", "what", counters)
    }

    fn results(&self, to: &mut Encoder<'_>, ledger: &LedgerStats) -> Result<(), Error> {
        let counters = LedgerStats::NAMES.into_iter().zip(ledger.values());
        let counters = counters.map(|(name, value)| (name.to_string(), value)).collect();
        to.counters("results", "What happened in the store of results", "what", counters)
    }

    /// How each core's loop is doing.
    fn cores(&self, to: &mut Encoder<'_>) -> Result<(), Error> {
        let each = |of: fn(&Collected) -> u64| -> Vec<(String, u64)> {
            let numbered = self.cores.iter().enumerate();
            numbered.map(|(core, told)| (core.to_string(), of(told))).collect()
        };
        for (name, help, of) in [
            ("slots", "Copies that may run at once", (|c| c.slots.into()) as fn(&Collected) -> u64),
            ("overloaded", "Whether the newest are served first", |c| c.overloaded.into()),
            ("clients", "Accepted connections that are open, of clients and of peers", |c| {
                c.snapshot.clients as u64
            }),
            ("credit_left_requests", "Requests that clients may still send", |c| {
                c.snapshot.credit_left.requests
            }),
            ("credit_left_bytes", "Bytes of requests that clients may still send", |c| {
                c.snapshot.credit_left.bytes
            }),
            (
                "credit_withheld_requests",
                "Ended requests whose clients have not read so far",
                |c| c.snapshot.credit_withheld.requests,
            ),
            (
                "credit_withheld_bytes",
                "Bytes of ended requests whose clients have not read so far",
                |c| c.snapshot.credit_withheld.bytes,
            ),
            ("mesh_up", "Cores of peers that can be told of starts", |c| c.snapshot.mesh_up as u64),
            ("mesh_kept", "Cores of peers that are dialled", |c| c.snapshot.mesh_kept as u64),
            ("tombstones_live", "Tombstones that wait", |c| c.snapshot.tombstones as u64),
            ("assembling_bytes", "Bytes of requests that are on their way in segments", |c| {
                c.snapshot.assembling as u64
            }),
            ("loop_live_tasks", "Tasks that have not ended", |c| c.runtime.live_tasks as u64),
            ("loop_free_buffers", "Receive buffers that are free", |c| {
                c.runtime.free_buffers as u64
            }),
            ("loop_in_flight", "Requests that the kernel holds", |c| {
                c.runtime.requests_in_flight as u64
            }),
        ] {
            to.gauges(name, help, "core", each(of))?;
        }
        for (name, help, of) in [
            ("loop_turns", "Turns", (|c| c.runtime.turns) as fn(&Collected) -> u64),
            ("loop_enters", "Calls of io_uring_enter", |c| c.runtime.enters),
            ("loop_waits", "Those that waited", |c| c.runtime.waits),
            ("loop_polls", "Polls of tasks", |c| c.runtime.polls),
            ("loop_stalls", "Polls that held the core up", |c| c.runtime.stalls),
            ("loop_parks", "Times that no receive buffer was free", |c| c.runtime.parks),
            ("loop_overflows", "Overflows of the completion queue", |c| c.runtime.overflows),
            ("loop_budgets_exhausted", "Turns that ended with tasks ready", |c| {
                c.runtime.budgets_exhausted
            }),
            ("loop_inputs_cut_short", "Turns that decided with input left", |c| {
                c.runtime.inputs_cut_short
            }),
            ("loop_sent_bytes", "Bytes that were sent", |c| c.runtime.bytes_sent),
            ("loop_received_bytes", "Bytes that were received", |c| c.runtime.bytes_received),
        ] {
            to.counters(name, help, "core", each(of))?;
        }
        Ok(())
    }

    fn calls(&self, to: &mut Encoder<'_>) -> Result<(), Error> {
        let mut sum = super::tally::Rows::default();
        self.cores.iter().for_each(|core| sum.add(&core.rows));
        let text = |label: Option<Label>| {
            label.map_or_else(String::new, |label| printable(&label.to_string()))
        };
        let named = |(row, count): (Row, u64)| {
            let labels = [
                ("method", self.name(row.method)),
                ("class", row.class.0.to_string()),
                ("tenant", text(row.tenant)),
                ("cache", text(row.cache)),
            ];
            (labels, count)
        };
        let help = "Copies that were answered by their handlers; 256 rows have labels, others are \
                    in the row of their method and class without";
        let mut family = to.family("calls", help, MetricType::Counter)?;
        for (labels, count) in sum.rows.into_iter().map(named) {
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let help = "Of the calls: with labels for which there was no row any more";
        to.counter("calls_without_row", help, sum.without_row)
    }

    fn times(&self, to: &mut Encoder<'_>, times: &Histograms) -> Result<(), Error> {
        for (name, help, service) in [
            ("queue_wait_seconds", "How long copies that started had waited", false),
            ("service_seconds", "How long copies held their slots", true),
        ] {
            let mut family = to.family(name, help, MetricType::Histogram)?;
            for method in &times.methods {
                let labels: &Labels<'_> = &[("method", self.name(method.method))];
                let times = if service { &method.service } else { &method.wait };
                let (sum, buckets) = bucketed(times);
                let none =
                    None::<&std::collections::HashMap<usize, Exemplar<[(&str, &str); 0], f64>>>;
                family.encode_family(&labels)?.encode_histogram(
                    sum,
                    times.len(),
                    &buckets,
                    none,
                )?;
            }
        }
        for (name, help, times) in [
            ("stop_seconds", "From being asked to stop to the end", &times.stop),
            ("orphan_seconds", "From the close of a connection to its work's end", &times.orphan),
            ("held_seconds", "How long copies were held back for clients to read", &times.held),
        ] {
            let (sum, buckets) = bucketed(times);
            let none = None::<&std::collections::HashMap<usize, Exemplar<[(&str, &str); 0], f64>>>;
            let mut family = to.family(name, help, MetricType::Histogram)?;
            family.encode_histogram(sum, times.len(), &buckets, none)?;
        }
        Ok(())
    }
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut to = Encoder(encoder);
        let mut cores = self.cores.iter();
        let Some(first) = cores.next() else { return Ok(()) };
        let (mut sum, mut times) = (first.snapshot, first.histograms.clone());
        for core in cores {
            sum = sum.plus(&core.snapshot);
            times.add(&core.histograms);
        }
        self.calls(&mut to)?;
        self.copies(&mut to, &sum.copies)?;
        self.times(&mut to, &times)?;
        self.connections(&mut to, &sum.connections)?;
        if let Some(ledger) = &self.ledger {
            self.results(&mut to, ledger)?;
        }
        if let Some(visits) = self.visits {
            let counters = [("admitted", visits.admitted), ("gave_way", visits.gave_way)];
            let counters = counters.map(|(name, value)| (name.to_string(), value)).to_vec();
            let help = "Connections for this page: let in, and cut off as others came for it";
            to.counters("page_visits", help, "what", counters)?;
        }
        self.cores(&mut to)
    }
}

/// Writes families, each in a line or a few.
struct Encoder<'a>(DescriptorEncoder<'a>);

impl Encoder<'_> {
    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        of: MetricType,
    ) -> Result<prometheus_client::encoding::MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, help, None, of)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        ConstGauge::new(signed(value)).encode(self.family(name, help, MetricType::Gauge)?)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        ConstCounter::new(value).encode(self.family(name, help, MetricType::Counter)?)
    }

    /// One counter for each value of a label.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: Vec<(String, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (which, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&[(label, which)])?)?;
        }
        Ok(())
    }

    /// One gauge for each value of a label.
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: Vec<(String, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (which, value) in values {
            ConstGauge::new(signed(value)).encode(family.encode_family(&[(label, which)])?)?;
        }
        Ok(())
    }
}

/// What came from outside may end up on a terminal, or before a reader with lines of its own idea.
fn printable(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if breaks(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The sum of all times, in seconds, and how many are in each bucket.
fn bucketed(times: &Histogram<u32>) -> (f64, Vec<(f64, u64)>) {
    let mut buckets: Vec<(f64, u64)> = BOUNDS.into_iter().map(|bound| (bound, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    let mut sum = 0.0;
    for step in times.iter_recorded() {
        let (seconds, count) = (step.value_iterated_to() as f64 / 1e9, step.count_at_value());
        sum += seconds * f64::from(count);
        let place = BOUNDS.partition_point(|bound| *bound < seconds);
        buckets[place].1 += u64::from(count);
    }
    (sum, buckets)
}

#[cfg(test)]
mod tests;
