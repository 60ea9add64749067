//! The raw histograms, in the log format that HdrHistogram's own tools read.

use core::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use thiserror::Error;

use super::Report;
use crate::course::order;
use crate::stats::Slice;

/// A histogram that cannot be written: a defect of the program, not of the run.
#[derive(Debug, Error)]
#[error("cannot encode the histogram {tag}: {why}")]
pub struct EncodeError {
    tag: String,
    why: String,
}

/// The log: for each policy and round one interval tagged with the policy's name, and one tagged
/// with the name and `-lag` for the generator's lateness. Values are nanoseconds.
pub(super) fn log(report: &Report) -> Result<Vec<u8>, EncodeError> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("Values are nanoseconds; the maximum on each line is in milliseconds.")
        .with_start_time(report.started)
        .with_base_time(report.started)
        .with_max_value_divisor(1e6);
    let mut writer = builder
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| EncodeError { tag: "log".into(), why: error.to_string() })?;
    for (tag, slice, histogram, at) in intervals(report) {
        let name = Tag::new(&tag);
        writer
            .write_histogram(histogram, at, slice.duration, name)
            .map_err(|error| EncodeError { tag: tag.clone(), why: format!("{error:?}") })?;
    }
    drop(writer);
    Ok(text)
}

type Interval<'a> = (String, &'a Slice, &'a Histogram<u64>, Duration);

/// Every histogram in the order in which the slices ran, round by round, with the time from the
/// start of the run at which it began (pauses between slices left out).
fn intervals(report: &Report) -> Vec<Interval<'_>> {
    let rounds = report.policies.iter().map(|policy| policy.slices.len()).max().unwrap_or(0);
    let mut at = Duration::ZERO;
    let mut intervals = Vec::new();
    for round in 0..rounds {
        for policy in order(round, report.policies.len()).map(|index| &report.policies[index]) {
            let Some(slice) = policy.slices.get(round) else { continue };
            let lag = format!("{}-lag", policy.policy);
            intervals.push((policy.policy.clone(), slice, slice.latency.histogram(), at));
            intervals.push((lag, slice, slice.lag.histogram(), at));
            at += slice.duration;
        }
    }
    intervals
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::report::sample;

    #[test]
    fn the_log_reads_back_as_the_histograms_that_were_measured() {
        let report = sample::report();
        let text = log(&report).expect("encodes");
        let mut read = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            if let LogEntry::Interval(interval) = entry.expect("parses") {
                let tag = interval.tag().expect("tagged").as_str().to_owned();
                let bytes = BASE64_STANDARD.decode(interval.encoded_histogram()).expect("base64");
                let histogram: Histogram<u64> =
                    Deserializer::new().deserialize(&mut &bytes[..]).expect("decodes");
                read.push((tag, histogram.len(), histogram.max()));
            }
        }
        let expected: Vec<_> = intervals(&report)
            .into_iter()
            .map(|(tag, _, histogram, _)| (tag, histogram.len(), histogram.max()))
            .collect();
        assert_eq!(read, expected);
        assert_eq!(read.len(), 3 * 3 * 2);
        assert!(text.starts_with(b"#[Histogram log format version 1.3]"));
    }
}
